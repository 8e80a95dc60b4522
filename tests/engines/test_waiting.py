"""What a launch is said to wait for: by the ranks' heartbeats, and once a line in a log file."""

import io

import pytest
from engines.helpers import make_case
from rich.console import Console

from ssfx.lab.engines.failure import waits_for
from ssfx.lab.engines.progress import Report
from ssfx.lab.worker.heartbeat import Beat


@pytest.mark.parametrize(
    ("phases", "what"),
    [
        ([], "starting 2 ranks"),
        (["setup"], "starting 2 ranks"),
        (["setup", "setup"], "loading model and data"),
        (["exchange", "compile"], "compiling kernels, which are kept for later runs"),
        (["evaluate", "evaluate"], "evaluating"),
        (["forward", "exchange"], ""),
    ],
)
def test_what_ranks_do_says_what_is_waited_for(phases, what):
    assert waits_for({rank: Beat(1, 0, phase) for rank, phase in enumerate(phases)}, 2) == what


def test_a_log_file_has_a_line_for_each_thing_waited_for():
    case, text = make_case(), io.StringIO()
    with Report([case], True, Console(file=text)) as report:
        for what in ("starting 2 ranks", "starting 2 ranks", "loading model and data", "", "starting 2 ranks"):
            report.waits(case, what)
    assert text.getvalue().splitlines() == ["fake/ddp x2: starting 2 ranks", "fake/ddp x2: loading model and data"]


def test_compiling_a_kernel_is_noticed_and_loading_it_is_not(tmp_path, monkeypatch):
    from numba import njit
    from numba.core import event

    from ssfx.compressors.kernels.cpu.jit import watch_compiling

    before = {kind: list(listeners) for kind, listeners in event._registered.items()}
    told = []
    watch_compiling(told.append)
    try:
        inner = njit(lambda x: x + 1)
        outer = njit(lambda x: inner(x) * 2)
        assert outer(3) == 8
        assert told == [True, False]
        assert outer(4) == 10
        assert told == [True, False]
    finally:
        for kind, listeners in event._registered.items():
            listeners[:] = before.get(kind, [])
