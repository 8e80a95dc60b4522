"""Ending a launch ends its own processes and nobody else's."""

import subprocess
import sys

import pytest

from ssfx.lab.engines.launch import Launch, Patience


@pytest.fixture
def stranger():
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def launched(*processes):
    launch = Launch([], "fake_train:train", Patience(), None, None, None)
    launch._processes = list(processes)
    return launch


def test_the_number_of_a_process_that_was_waited_for_may_be_a_strangers(stranger):
    done = subprocess.Popen([sys.executable, "-S", "-c", ""], stdin=subprocess.PIPE)
    done.wait()
    done.pid = stranger.pid  # as if the number had been given away since
    launched(done).stop()
    assert stranger.poll() is None
    assert done.stdin.closed


def test_a_process_that_runs_is_ended(started):
    running = started.start(["cat"], stdin=subprocess.PIPE)
    launched(running).stop()
    assert running.returncode is not None
