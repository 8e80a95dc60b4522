"""Rounds of local updates against a published simulation: Table 4 of Streaming DiLoCo, read from the file beside this.

Nothing of the table is measured, and nothing of ours is tuned to it: two simulators are compared.
"""

from functools import cache
from math import log
from pathlib import Path
from typing import Any

from scipy.optimize import brentq

from experiments.common.validation.groups import Group, parts_by
from experiments.common.validation.scores import Pair
from ssfx.core.files import read_json
from ssfx.core.origin import Origin
from ssfx.perf_model.cluster import Cluster, Link
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.costs import CompressorTimes, Curve
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator import simulate

NAME = "rounds"
EVERY = 100
FOUR_BITS = "qsgd(bits=4,bucket=0,norm=max)"
"""The paper's floats of four bits have no scale beside them; these have one for a message."""
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "DiLoCo": ("diloco", {"compressor": "bf16"}),
    "streaming, hidden": ("streaming_diloco", {"compressor": "bf16", "delay": 1}),
    "streaming, hidden, 4 bits": ("streaming_diloco", {"compressor": FOUR_BITS, "delay": 1}),
}
_ORIGIN = Origin("simulated", note="a step of given length; compressors and latencies take no time, as in the paper")


def rounds() -> list[Group]:
    """Return one group, of the bandwidths at which so large a share of the time is computing."""
    held = read_json(Path(__file__).with_name("streaming_diloco_table4.json"))
    pairs = tuple(
        Pair(f"{size}, {share:.0%} computing", method, _needed_gbps(held["models"][size], method, share), printed)
        for size, rows in held["gbps"].items()
        for method, values in rows.items()
        for share, printed in zip(held["shares"], values, strict=True)
    )
    sets = (
        *parts_by(METHODS, lambda pair, method: pair.label == method),
        *parts_by(held["gbps"], lambda pair, size: pair.panel.startswith(f"{size},")),
    )
    notes = (
        "published simulation: both sides are simulators, and none of the cells was measured",
        "simulated rounds are multiples of their fragments; what one adds to its steps is shared by 100 here",
    )
    return [
        Group(
            f"{NAME}: Gbit/s that rounds need, against a published simulation",
            "sizes and seconds of a step as printed; links without latency; none of the scored numbers",
            f"arXiv {held['arxiv']}, {held['table']}",
            pairs,
            sets,
            notes,
            "Gbit/s",
        )
    ]


def _needed_gbps(model: dict[str, float], method: str, share: float) -> float:
    """Return the rate at which a step alone is so large a share of the average step of a round."""

    def off(log_gbps: float) -> float:
        return (
            model["step_s"] / _step_s(model["parameters"], model["step_s"], method, _fragments(model), log_gbps) - share
        )

    return float(2.0 ** brentq(off, log(1e-4, 2), log(1e5, 2)))


def _fragments(model: dict[str, float]) -> int:
    return int(model["fragments"])


@cache
def _step_s(parameters: float, alone_s: float, method: str, fragments: int, log_gbps: float) -> float:
    scheme, given = METHODS[method]
    every = EVERY
    if scheme == "streaming_diloco":
        every = fragments * round(EVERY / fragments)
        given = {**given, "fragments": fragments}
    link = Link(2.0**log_gbps, 1.0, 0.0)
    none = CompressorTimes(Curve.zero(), Curve.zero(), Curve.zero(), _ORIGIN)
    exchange = Cluster("two datacentres", "", 2, 1, "cpu", link, link, "").exchange()
    system = TimingModel("two datacentres", 2, {"bf16": none, FOUR_BITS: none}, exchange, _ORIGIN)
    tensors = tuple(TensorSpec(f"layer{n}", (10**9,)) for n in range(round(parameters / 1e9)))
    profile = Profile("model", tensors, (alone_s / len(tensors),) * len(tensors), 0.0, _ORIGIN)
    costs = system.planning_costs(str(given["compressor"]), None)
    plan = make_plan(scheme, profile, costs, {**given, "every": every})
    return alone_s + (simulate(plan, profile, system).iteration_s - alone_s) * every / EVERY
