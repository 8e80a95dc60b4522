"""Every scheme, with and without error feedback, on two, three and four ranks, cut at a random step."""

import random

import pytest
from runtime.cases import of_scheme
from runtime.ranks import Ranks
from runtime.work_resume import resumes_exactly

from ssfx.schemes import schemes

EVERY = [s.name for s in schemes]
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
