"""Time to quality by bandwidth, of exchanges of every step and of rounds, with the evidence that each has.

Simulated steps times the steps that are known to be needed: as many as dense training where sums are in 16 bits, else
what others published of such methods; where nothing is known, steps alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ssfx.advice.published import Point, local_updates, published_of
from ssfx.advice.setting import Setting
from ssfx.config.advice_question import resolve_setting

RATES_GBPS = (0.1, 0.3, 1.0, 3.0, 10.0, 25.0, 100.0, 400.0)
"""Line rates for each GPU."""
WORLDS = {
    "8 nodes of 8": "cluster=box cluster.nodes=8 cluster.device=h100 cluster.intra.link=nvlink cluster.link=25gbe",
    "2 sites of 8": "cluster=two_sites",
    "4 sites of 8": "cluster=four_sites",
}
MODEL = "model=gpt2_large precision=bf16 batch_size=8"
BITS16 = ("ddp_fp16", "ddp_bf16", "hierarchical_fp16")
ROUNDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("diloco every 32", "diloco", {"every": 32}),
    ("diloco every 500", "diloco", {"every": 500}),
    ("streaming every 128", "streaming_diloco", {"every": 128}),
    ("sparseloco every 30", "sparseloco", {}),
)
NEAR = 2.0
"""Published rounds speak for those of this many times as many steps, or as few."""


@dataclass(frozen=True)
class Place:
    """A method in a world at a rate: `low` to `high` times the steps of dense training, None where nothing is known.

    `step_s` over `alone_s` is what the network costs; `evidence` is "dense", "published" or "none".
    """

    world: str
    gbps: float
    method: str
    step_s: float
    alone_s: float
    evidence: str
    low: float | None = None
    high: float | None = None

    def times(self, steps: float | None) -> float:
        """Return the time to dense quality with so many times the steps over that of a network that costs nothing."""
        return self.step_s / self.alone_s * (1.0 if steps is None else steps)


@cache
def places() -> tuple[Place, ...]:
    """Return every method in every world at every rate."""
    return tuple(_places())


def _places() -> Iterator[Place]:
    for world, words in WORLDS.items():
        usual = resolve_setting([*MODEL.split(), *words.split()])
        per_card = usual.cluster.devices_per_node / usual.cluster.nics_per_node
        for gbps in RATES_GBPS:
            yield from _at(world, gbps, usual.at(gbps * per_card))


def _at(world: str, gbps: float, setting: Setting) -> Iterator[Place]:
    dense = min(setting.best(name).iteration_s for name in BITS16)
    start = Place(world, gbps, "16 bits every step", dense, setting.alone_s, "dense", 1.0, 1.0)
    yield start
    four = setting.best("ddp_4bit")
    yield _known(
        replace(start, method="4 bits every step", step_s=four.iteration_s), published_of(four.plan, setting.network)
    )
    for method, scheme, given in ROUNDS:
        trial = setting.trial(scheme, given)
        rounds = trial.plan.rounds
        assert rounds is not None
        found = local_updates(setting.network, setting.cluster.nodes) if scheme == "diloco" else []
        near = [one for one in found if one.every and 1 / NEAR <= one.every / rounds.every <= NEAR]
        yield _known(replace(start, method=method, step_s=trial.iteration_s), near)


def _known(place: Place, points: list[Point]) -> Place:
    more = [1 + one.more_tokens_percent / 100 for one in points if one.more_tokens_percent is not None]
    if not more:
        return replace(place, evidence="none", low=None, high=None)
    return replace(place, evidence="published", low=min(more), high=max(more))
