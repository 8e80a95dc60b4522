"""On a device whose streams are clocks: right values, no race, and every wait that the runtime has is needed.

What a GPU may reorder cannot be seen on a CPU by its results. `fake_device` orders work as streams and events do, so a
forgotten wait is found without a GPU; that it finds them is shown by forgetting each.
"""

from __future__ import annotations

import pytest
import torch
from runtime import work_fake_device as work
from runtime.cases import DENSE, SPARSE, of_scheme
from runtime.fake_device import FakeDevice
from runtime.pool import Pool

STEPS = 7
"""The last two are by the plan of a scheme that observes five."""
SCHEMES = [*DENSE, *SPARSE]
TWICE = [  # each of these is needed unless the others are there
    {"lane.py DenseLane.finish work.wait", "queue.py ExchangeQueue._issue work.wait"},
    {"packed.py PackedLane.finish work.wait", "queue.py ExchangeQueue._issue work.wait"},
]
IN_ORDER = {"all_gather.py AllGatherTwice.start.<locals>.<lambda> work.wait"}
"""Messages of one communicator end in order on NCCL, so that the second wait is enough; on gloo both are needed."""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_scheme_has_a_race_and_values_are_those_of_the_cpu(pool: Pool, scheme: str) -> None:
    options = of_scheme(scheme, 2)
    ranks = pool.run(work.trained, 2, options, STEPS)
    assert [races[:3] for races, _, _ in ranks] == [[], []]
    assert [values for _, _, values in ranks] == pool.run(work.on_cpu, 2, options, STEPS)


def test_every_wait_that_is_forgotten_is_found(pool: Pool) -> None:
    pairs = [tuple(pair) for pair in TWICE]
    missing: set[str] = set()
    needed: set[str] = set()
    for scheme in SCHEMES:
        options = of_scheme(scheme, 2)
        places = set.union(*(seen for _, seen, _ in pool.run(work.trained, 2, options, STEPS)))
        for place in sorted(places - needed):
            ranks = pool.run(work.trained, 2, options, STEPS, [place])
            (needed if any(races for races, _, _ in ranks) else missing).add(place)
        for pair in [pair for pair in pairs if places.issuperset(pair)]:
            if any(races for races, _, _ in pool.run(work.trained, 2, options, STEPS, pair)):
                pairs.remove(pair)
    assert not pairs
    assert missing - needed == set.union(*TWICE) | IN_ORDER
    assert len(needed) > 20


def test_a_race_is_found_and_a_wait_ends_it() -> None:
    fake = FakeDevice()
    with fake.training():
        side, data = fake.stream(torch.device("cpu")), torch.zeros(4, dtype=torch.float32)
        with fake.working_on(side):
            data.add_(1)
    assert fake.races == ["aten::add_ on stream 1 after aten::zeros on default"]
    fake = FakeDevice()
    with fake.training():
        side, data = fake.stream(torch.device("cpu")), torch.zeros(4, dtype=torch.float32)
        side.wait_stream(fake.current())
        with fake.working_on(side):
            data[:2].add_(1)
        data[2:].add_(1)  # other bytes of the same tensor
        fake.current().wait_event(fake.event(torch.device("cpu"), stream=side))
        data.add_(1)
    assert fake.races == []
    assert data.tolist() == [2.0] * 4
