"""Compare scheme=auto with every other scheme within its budget on random points, simulated.

    python benchmarks/auto.py [POINTS] [--every N] [--json FILE]

A point is a model, a cluster, 1 to 400 Gbit/s between its nodes and 4 to 4096 ranks; its number is the seed that it is
drawn with, so that the points are the same everywhere. Each has one of two budgets: density 0.01, and quality=normal,
which admits of other schemes what it admits of auto. With --every N only every Nth point is computed. Goals: auto takes
at most 1.00x the time of the best other scheme of its budget, and of dense 16 bits, on 99 % of the points, and never
more than 1.02x; at 5 to 100 Gbit/s it is 1.2x as fast as SSFusion-(O+I) in the median. Nothing is asserted.
"""

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from rich.console import Console
from rich.table import Table

from ssfx.advice.sending import more_steps
from ssfx.core.case import ClusterChoice
from ssfx.core.errors import ConfigError
from ssfx.core.files import write_json
from ssfx.lab.results.manifest import code, now
from ssfx.perf_model.target import Target, target_at
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.search.recorded_network import Network
from ssfx.schemes.transport import keeps_fraction
from ssfx.simulator import simulate

MODELS = (
    "resnet50",
    "resnet101",
    "resnet152",
    "vgg16",
    "vgg19",
    "vit_large",
    "bert_base",
    "bert_large",
    "gpt2",
    "gpt2_large",
    "lstm_650",
    "resnet18_cifar10",
    "densenet40_cifar100",
    "gnmt8",
    "senet18_cifar10",
)
CLUSTERS = ("64gpu", "64gpu_40gb", "acpsgd_10gbe", "box", "micro", "s2reducer_10gbe")
BUDGETS: dict[str, dict[str, Any]] = {
    "density 0.01": {"density": 0.01},
    "quality=normal": {"quality": "normal"},
}
QUANTISED = ("fp8", "qsgd(norm=max)", "qsgd(bits=4,bucket=48,norm=max)")
DENSE = ("ddp", "ddp_fp16", "ddp_bf16", "hierarchical", "hierarchical fp16", "ssgd", "wfbp", "acpsgd", "powersgd")
ANY = (
    "cltk fused_all hipress espresso mergecomp micro oktopk per_tensor spardl ssfusion_naive ssfusion_o ssfusion_i "
    "ssfusion_oi"
)
RECORDED = (
    *(f"powersgd powersgd(rank={rank})" for rank in (16, 32)),
    *(f"ddp_quantized {one}" for one in QUANTISED),
    *(
        f"{scheme} {one}"
        for scheme in ("cupcake", "fused_all", "hipress", "mergecomp", "omgs", "per_tensor")
        for one in ("fp16", *QUANTISED)
    ),
)
OTHERS = {
    "density 0.01": (*DENSE, *ANY.split(), "ddp_quantized onebit"),
    "quality=normal": (*DENSE, *RECORDED),
}
"""The schemes to compare with, and the compressor where it is not the scheme's own; of a quality those that it admits.

Left out of all: those that vote, sketch, or assume which rows or blocks are zero.
"""
SSFUSION = ("ssfusion_oi", "ssfusion_oi (density 0.01)")
COLUMNS = (
    "seed",
    "model",
    "cluster",
    "gbps",
    "nodes",
    "budget",
    "best other",
    "over the best other",
    "over dense 16 bits",
    "over ssfusion_oi",
)
"""What is written of a point; the last three are auto's time over theirs."""


@dataclass(frozen=True)
class Point:
    """One place to compare at."""

    seed: int
    model: str
    cluster: str
    gbps: float
    nodes: int
    budget: str

    @property
    def target(self) -> Target:
        """The model on the cluster, as times."""
        return _target(self.model, self.cluster, self.gbps, self.nodes)


@cache
def _target(model: str, cluster: str, gbps: float, nodes: int) -> Target:
    choice = ClusterChoice(cluster, {"inter.gbps": gbps, "nodes": nodes})
    return target_at(choice, None, "auto", model, 8, "sgd")


def points(seeds: Sequence[int], models: Sequence[str] = MODELS) -> Iterator[Point]:
    """Yield the points of `seeds`; budgets take turns."""
    for seed in seeds:
        rng = random.Random(seed)
        cluster = rng.choice(CLUSTERS)
        devices = target_at(ClusterChoice(cluster, {}), None, "auto", "resnet50", 8, "sgd").cluster.devices_per_node
        ranks = 2 ** rng.uniform(2, 12)
        nodes = min(4096 // devices, max(2, round(ranks / devices)))
        gbps = float(f"{400 ** rng.random():.3g}")
        yield Point(seed, rng.choice(models), cluster, gbps, nodes, list(BUDGETS)[seed % len(BUDGETS)])


def time_s(point: Point, name: str) -> float:
    """Return the simulated iteration of a scheme at a point; infinity where its quality is not admitted there."""
    scheme, _, asked = name.partition(" ")
    target, entry = point.target, schemes[scheme]
    given = dict(BUDGETS[point.budget]) if scheme == "auto" else {"compressor": asked} if asked else {}
    compressor = asked or getattr(entry.defaults, "compressor", None)
    if compressor is not None and keeps_fraction(compressor):
        given["density"] = BUDGETS[point.budget].get("density")
    if hasattr(entry.defaults, "ranks_per_node"):
        given["ranks_per_node"] = target.cluster.devices_per_node
    costs = target.system.planning_costs(compressor, given.get("density"))
    plan = make_plan(scheme, target.profile, costs, given)
    if "quality" in BUDGETS[point.budget] and more_steps(plan, Network.of(target.profile)) is None:
        return inf
    return simulate(plan, target.profile, target.system).iteration_s


@dataclass(frozen=True)
class Compared:
    """The seconds of every scheme at a point, and the processor seconds that planning and simulating auto took."""

    point: Point
    times_s: dict[str, float]
    planning_s: float

    def over(self, *names: str) -> float:
        """Return auto's time over the least of these schemes."""
        return self.times_s["auto"] / min(self.times_s[name] for name in names if name in self.times_s)

    def line(self) -> list[Any]:
        """Return COLUMNS of the point."""
        at = self.point
        ratios = (self.over(*OTHERS[at.budget]), self.over("ddp_fp16"), self.over(*SSFUSION))
        return [at.seed, at.model, at.cluster, at.gbps, at.nodes, at.budget, self.best, *(round(r, 5) for r in ratios)]

    @property
    def best(self) -> str:
        """The fastest other scheme."""
        return min((name for name in OTHERS[self.point.budget] if name in self.times_s), key=self.times_s.__getitem__)


def compared(point: Point, others: Sequence[str] | None = None) -> Compared:
    """Return the times at `point` of auto and of `others`, by default all of its budget."""
    began = process_time()
    times_s = {"auto": time_s(point, "auto")}
    planning_s = process_time() - began
    for scheme in OTHERS[point.budget] if others is None else others:
        try:
            times_s[scheme] = time_s(point, scheme)
        except ConfigError:  # more elements than a message can address
            continue
    if "ssfusion_oi" not in times_s:
        sparse = Point(point.seed, point.model, point.cluster, point.gbps, point.nodes, "density 0.01")
        times_s["ssfusion_oi (density 0.01)"] = time_s(sparse, "ssfusion_oi")
    return Compared(point, times_s, planning_s)


def main() -> None:
    """Print a line for each budget, and the points where auto is furthest behind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", nargs="?", type=int, default=510)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every point to FILE")
    given = parser.parse_args()
    with ProcessPoolExecutor(given.processes) as pool:
        found = list(pool.map(compared, points(range(0, given.points, given.every)), chunksize=4))
    show(found)
    if given.json:
        about = {"origin": "simulated", "date": now(), "code": code(), "columns": list(COLUMNS)}
        write_json(given.json, json.dumps(about | {"points": [one.line() for one in found]}, separators=(",", ":")))


def show(found: Sequence[Compared]) -> None:
    """Print what was found."""
    table = Table(title=f"auto on {len(found)} points, iteration over that of others")
    for heading in ("budget", "points", "others", "worst", "16 bits", "worst", "SSFusion"):
        table.add_column(heading, justify="left" if heading == "budget" else "right")
    for budget in (*BUDGETS, "all"):
        own = [one for one in found if budget in (one.point.budget, "all")]
        if not own:
            continue
        others = [one.over(*OTHERS[one.point.budget]) for one in own]
        half = [one.over("ddp_fp16") for one in own]
        middle = [1 / one.over(*SSFUSION) for one in own if 5 <= one.point.gbps <= 100]
        cells = [text for ratios in (others, half) for text in (share(ratios), f"{max(ratios):.4f}")]
        table.add_row(budget, str(len(own)), *cells, f"{median(middle):.2f}x" if middle else "")
    console = Console(width=100)
    console.print(table)
    console.print("others, 16 bits: points where auto takes at most 1.00x the best other scheme, or dense 16 bits.")
    console.print("SSFusion: how many times as fast as it auto is, in the median of 5 to 100 Gbit/s.")
    planning = [one.planning_s for one in found]
    console.print(f"planning and simulating auto: median {median(planning):.2f} s, at most {max(planning):.2f} s")
    for one in sorted(found, key=lambda one: -one.over(*OTHERS[one.point.budget]))[:8]:
        console.print(f"{one.over(*OTHERS[one.point.budget]):.4f} against {one.best}: {one.point}")


def share(ratios: Sequence[float]) -> str:
    """Return how many of the ratios are 1.00 or less when rounded."""
    return f"{sum(round(ratio, 2) <= 1 for ratio in ratios) / len(ratios):.1%}"


if __name__ == "__main__":
    main()
