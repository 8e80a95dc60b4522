"""What signals make of a launcher, without ranks: in-process, and where a launcher waits for another one."""

import os
import signal

import pytest
from engines.helpers import make_case

from ssfx.core.errors import REQUEUE_EXIT_CODE, RequeueError
from ssfx.lab.engines.launch import NOW, Patience, signals
from ssfx.lab.engines.progress import Report
from ssfx.lab.engines.torchrun import _Sweep, _wait
from ssfx.lab.results.store import Store


@pytest.fixture
def at_default():
    """Signals that nohup and others may have ignored for these tests are at their defaults."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in NOW}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def come(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_once_with_a_line_and_its_code(number, capsys, at_default):
    before = signal.getsignal(number)

    def end() -> None:
        with signals():
            try:
                come(number)
            finally:
                come(number)  # while ranks are being ended: it must not come between

    with pytest.raises(SystemExit) as caught:
        end()
    assert caught.value.code == 128 + number
    assert capsys.readouterr().err == (
        f"ssfx: ended by {number.name}; finished runs are kept and the same command continues\n"
    )
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("later", NOW)
def test_ctrl_c_comes_once_and_nothing_comes_after_it(later, capsys, at_default):
    def end() -> None:
        with signals():
            try:
                come(signal.SIGINT)
            finally:
                come(later)

    with pytest.raises(KeyboardInterrupt):
        end()
    assert capsys.readouterr().err == ""  # the command says it
    assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals():
            come(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_warning_waits_for_a_moment_after_which_work_can_go_on():
    with signals() as warned:
        warned.check("it came")
        come(signal.SIGUSR1)
        with pytest.raises(RequeueError, match="stopped by SIGUSR1 before run x began") as caught:
            warned.check("run x began")
    assert caught.value.exit_code == REQUEUE_EXIT_CODE == 75


def test_a_warning_ends_waiting_for_another_launcher(tmp_path):
    case, store = make_case(), Store(tmp_path)
    claim = store.claim(case)
    with signals() as warned, Report([case], False) as report:
        waiting = _wait(case, _Sweep(store, report, Patience(), warned, 1, False))
        next(waiting)
        come(signal.SIGUSR1)
        with pytest.raises(RequeueError, match="before another launcher was done"):
            next(waiting)
    claim.release()
