"""A rank that dies or hangs between two messages of a reducer, under the launcher: named, and nobody waits for ever."""

from typing import Any

import pytest
from engines.helpers import hurry, make_case, phases

from ssfx.core.errors import RunError
from ssfx.lab.engines.torchrun import Torchrun

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]
FAKE = "fake_reduce:train"


def sparse(scheme: str, **options: Any) -> Any:
    return make_case(scheme=scheme, compressor="topk", density=0.05, world_size=3, scheme_options=options)


@pytest.mark.nightly
def test_a_rank_killed_inside_a_reducer_is_named(store, monkeypatch):
    monkeypatch.setenv("FAKE_FAULT", "kill:1:3:3")
    with pytest.raises(RunError, match="rank 1 was killed by SIGKILL in exchange at step 3"):
        Torchrun(train=FAKE).run([sparse("oktopk", tau=2, tau_prime=3)], store, progress=False)


@pytest.mark.nightly
def test_stacks_tell_who_hangs_inside_a_reducer(store, monkeypatch):
    monkeypatch.setenv("FAKE_FAULT", "hang:1:3:2")
    hurry(monkeypatch, lambda: phases(store.runs, 3) == [(3, "exchange")] * 3 and any(store.runs.glob("*/HANGS")))
    with pytest.raises(RunError, match="all ranks hang in exchange at step 3, without progress for 70 s"):
        Torchrun(train=FAKE).run([sparse("spardl")], store, progress=False, stall_timeout_s=70)
    stacks = [next(store.runs.glob(f"*/attempt-1/stacks-rank{rank}.txt")).read_text() for rank in range(3)]
    assert ["fake_reduce.py" in text and "in hang" in text for text in stacks] == [False, True, False]
    assert all("spar_reduce_scatter.py" in text for text in stacks)
