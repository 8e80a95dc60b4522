"""Every scheme, with and without error feedback, on two, three and four ranks, cut at a random step."""

import random
from dataclasses import replace
from typing import Any

import pytest
from runtime import work
from runtime.cases import of_scheme
from runtime.ranks import Ranks, replaced

from ssfx.collectives.comm import Comm
from ssfx.planning.profile import Profile
from ssfx.runtime.online import Observer
from ssfx.schemes import schemes


def resumes_exactly(group: Any, rank: int, world: int, options: work.Options, cut: int) -> bool:
    """Return whether a run cut after `cut` steps, observed ones too, equals the uninterrupted one bit for bit."""

    def profile(self: Observer, base: Profile, comm: Comm) -> Profile:
        assert self.complete
        return replace(base, ready_gap_s=tuple(1e-4 * (1 + i % 3) for i in range(len(base.tensors))), forward_s=1e-3)

    with replaced(Observer, "profile", profile):
        return work.resumes_exactly(group, rank, world, options, cut)


EVERY = [s.name for s in schemes if not s.in_rounds]
WORLDS = (2, 3, 4)
LATEST = 10
"""The latest cut; five steps are observed where a scheme plans by what it observes."""
Drawn = tuple[str, int, str | None, int]


def drawn(scheme: str) -> list[Drawn]:
    """Return scheme, world, memory (None: its own, which keeps what was not sent) and the step of the cut."""
    random_ = random.Random(scheme)
    first = random_.randrange(len(WORLDS))
    memories = (None,) if schemes[scheme].dense else (None, "none")
    return [
        (scheme, WORLDS[(first + i) % len(WORLDS)], memory, random_.randrange(1, LATEST))
        for i, memory in enumerate(memories)
    ]


SAMPLE = [one for scheme in EVERY for one in drawn(scheme)]


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "world", "memory", "cut"), SAMPLE)
def test_a_run_cut_at_a_random_step_resumes_bit_by_bit(
    ranks: Ranks, scheme: str, world: int, memory: str | None, cut: int
) -> None:
    options = of_scheme(scheme, world) | ({"memory": memory} if memory else {})
    assert all(ranks.run(resumes_exactly, world, options, cut))


def test_the_sample_has_every_scheme_and_every_world_with_and_without_memory() -> None:
    assert {one[0] for one in SAMPLE} == set(EVERY)
    assert {(world, memory) for _, world, memory, _ in SAMPLE} == {(w, m) for w in WORLDS for m in (None, "none")}
    assert len({cut for *_, cut in SAMPLE}) == LATEST - 1


@pytest.mark.parametrize(("world", "more"), [(2, {}), (3, {"memory": "momentum"}), (4, {"dense_steps": 3})])
def test_one_bit_on_the_way_resumes_bit_by_bit(ranks: Ranks, world: int, more: dict[str, object]) -> None:
    assert all(ranks.run(resumes_exactly, world, {"scheme": "ddp_quantized", "compressor": "onebit", **more}, 5))
