"""On a device whose streams are clocks: right values, no race, and every wait that the runtime has is needed.

What a GPU may reorder cannot be seen on a CPU by its results. `fake_device` orders work as streams and events do, so a
forgotten wait is found without a GPU; that it finds them is shown by forgetting each.
"""

from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from runtime import work_fake_device as work
from runtime.cases import CASES, DENSE, SPARSE, THOROUGH, Options, name, of_scheme
from runtime.fake_device import FakeDevice, use_count
from runtime.pool import Pool

STEPS = 7
"""The last two are by the plan of a scheme that observes five."""
SCHEMES = [*DENSE, *SPARSE]
OTHERS = [
    *(
        (of_scheme(scheme, world), kind, world)
        for scheme, (kind, world) in zip(SCHEMES, cycle([("tied", 3), ("branches", 4), ("tied", 1)]), strict=False)
    ),
    *((options, "branches", 2) for options in CASES if "compressor" in options and options["scheme"] in THOROUGH),
]
"""Each scheme on another model and number of ranks, which take turns; each compressor of the CPU's suite."""
TRAINING = "training"
WAITS = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text()
TWICE = [  # each of these is needed unless the others are there
    {"message_kinds.py DenseMessage.finish work.wait", "message.py ExchangeQueue._issue work.wait"},
    {"message_kinds.py SummedMessage.finish work.wait", "message.py ExchangeQueue._issue work.wait"},
    {"packed_message.py GatheredMessage.finish work.wait", "message.py ExchangeQueue._issue work.wait"},
]
IN_ORDER = {"all_gather.py AllGatherTwice.start.<locals>.<lambda> work.wait"}
"""Messages of one communicator end in order on NCCL, so that the second wait is enough; on gloo both are needed."""


Runs = dict[str, list[Any]]


@pytest.fixture(scope="module")
def runs(pool: Pool) -> Runs:
    """What two ranks return, by scheme."""
    return {scheme: pool.run(work.trained, 2, of_scheme(scheme, 2), STEPS) for scheme in SCHEMES}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_scheme_has_a_race_and_values_are_those_of_the_cpu(pool: Pool, runs: Runs, scheme: str) -> None:
    ranks = runs[scheme]
    assert [races[:3] for races, *_ in ranks] == [[], []]
    assert [values for *_, values in ranks] == pool.run(work.on_cpu, 2, of_scheme(scheme, 2), STEPS)


@pytest.mark.parametrize(
    ("options", "kind", "world"),
    OTHERS,
    ids=lambda value: name(value) if isinstance(value, dict) else str(value),
)
def test_other_models_worlds_and_compressors_have_none_either(
    pool: Pool, options: Options, kind: str, world: int
) -> None:
    ranks = pool.run(work.trained, world, options, STEPS, (), kind)
    assert [races[:3] for races, *_ in ranks] == [[]] * world
    assert [values for *_, values in ranks] == pool.run(work.on_cpu, world, options, STEPS, kind)


@pytest.mark.nightly
def test_every_wait_that_is_forgotten_is_found(pool: Pool, runs: Runs) -> None:
    pairs = [tuple(pair) for pair in TWICE]
    missing: set[str] = set()
    needed: set[str] = set()
    for scheme in SCHEMES:
        options = of_scheme(scheme, 2)
        places = set.union(*(seen for _, seen, *_ in runs[scheme]))
        for place in sorted(places - needed):
            ranks = pool.run(work.trained, 2, options, STEPS, [place])
            (needed if any(races for races, *_ in ranks) else missing).add(place)
        for pair in [pair for pair in pairs if places.issuperset(pair)]:
            if any(races for races, *_ in pool.run(work.trained, 2, options, STEPS, pair)):
                pairs.remove(pair)
    assert not pairs
    assert missing - needed == set.union(*TWICE) | IN_ORDER
    assert len(needed) > 20


def test_the_host_waits_where_the_docs_say_and_the_training_thread_once_a_step(pool: Pool, runs: Runs) -> None:
    found: dict[str, set[str]] = {}
    three = pool.run(work.trained, 3, of_scheme("espresso", 3), STEPS)  # which cuts messages into shards from here on
    assert [races for races, *_ in three] == [[], [], []]
    for ranks in (*runs.values(), three):
        for *_, waits, _ in ranks:
            ours = {place.split()[0]: count for (thread, place), count in waits.items() if thread == TRAINING}
            per_step = {file: count / STEPS for file, count in ours.items()}
            assert per_step.pop("runtime/exchange.py") == 1
            assert per_step in ({}, {"runtime/message_layout.py": 1}), "the second only where messages differ in size"
            for thread, place in waits:
                found.setdefault(place.split()[0], set()).add(thread)
    lines = WAITS.split("## Where the host waits")[1].split("\n## ")[0].splitlines()
    rows = [[cell.strip(" `") for cell in line.split("|")[1:3]] for line in lines if line.startswith("| `")]
    assert {file: " and ".join(sorted(threads)) for file, threads in found.items()} == dict(rows)


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


@pytest.mark.skipif(use_count is None, reason="this torch does not say how many hold a storage")
@pytest.mark.parametrize("waits", [False, True])
def test_memory_that_is_given_away_while_a_stream_reads_it_is_found(waits: bool) -> None:
    fake = FakeDevice()
    with fake.training():
        side, data = fake.stream(torch.device("cpu")), torch.zeros(4, dtype=torch.float32)
        side.wait_stream(fake.current())
        with fake.working_on(side):
            total = data.sum()
        del data
        if waits:
            fake.current().wait_stream(side)
        torch.zeros(4, dtype=torch.float32)
    assert float(total) == 0
    assert fake.races == ([] if waits else ["memory of default was given away before stream 1 was done with it"])
