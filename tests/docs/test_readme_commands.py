"""The commands of README, tried as they are printed: a shell reads the line, and it ends with exit code 0."""

import os
import re
import subprocess
import sys

import pytest
from docs.markdown import ROOT, python_blocks

README = re.sub(r"<!--.*?-->", "", (ROOT / "README.md").read_text()).replace(" \\\n       ", "")
BLOCKS = re.findall(r"^    ((?:ssfx|make|pip) .*?)(?: +#.*)?$", README, re.MULTILINE)
INLINE = [" ".join(command.split()) for command in re.findall(r"`((?:ssfx|make) [^`]*)`", README)]
COMMANDS = list(dict.fromkeys([*BLOCKS, *INLINE]))
LONG = {
    "ssfx run",
    "ssfx run experiment=throughput cluster=64gpu",
    "make figures",
    "ssfx report",
    next(command for command in COMMANDS if "engine=virtual" in command),
}
"""Those of a minute and more; of a busy machine several."""
ELSEWHERE = {
    "make install && source .venv/bin/activate": "what CI does first",
    "pip install torch --index-url https://download.pytorch.org/whl/cpu": "of the network",
    "pip install .": "tests/packaging/test_wheel.py has what is installed",
    "make test": "this",
    "make test-all": "this, too",
    "ssfx doctor --gpu": "needs a GPU",
    "ssfx run scheme=ddp,acpsgd cluster=emulated_4x1gbit": "needs root; tests/engines/test_netns.py",
    "ssfx run ... engine=slurm": "needs Slurm; tests/engines/test_real_slurm.py",
    "make component KIND=scheme NAME=mine": "writes into the repository",
}
"""Commands that cannot be tried here, and why."""


def test_every_command_is_tried_or_told_why_not():
    assert set(ELSEWHERE) <= set(COMMANDS)
    assert {"ssfx doctor", *LONG} <= set(COMMANDS) - set(ELSEWHERE)


@pytest.fixture
def shell(tmp_path):
    """Return a function that runs a line where `ssfx` and the environment of `make` are those of these tests."""
    commands = tmp_path / "venv" / "bin"
    commands.mkdir(parents=True)
    (tmp_path / "venv" / ".installed").touch()
    for name, module in {"ssfx": "-m ssfx ", "python": ""}.items():
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
        (commands / name).chmod(0o755)
    (script,) = (block for block in python_blocks(ROOT / "CONTRIBUTING.md") if block.startswith("# mine/small.py"))
    (tmp_path / "mine.py").write_text(script.replace("def make(", "def data("))

    def run(line):
        place = ROOT if line.startswith("make") else tmp_path
        own = {"VENV": str(commands.parent), "SSFX_RESULTS": str(tmp_path / "results"), "OMP_NUM_THREADS": "1"}
        path = f"{commands}:{os.environ['PATH']}"
        python_path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"
        environment = {**os.environ, **own, "PATH": path, "PYTHONPATH": python_path}
        done = subprocess.run(["bash", "-c", line], cwd=place, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.slow
@pytest.mark.parametrize("line", [one for one in COMMANDS if one not in LONG | set(ELSEWHERE)])
def test_a_command_does_what_is_printed(line, shell):
    assert shell(line)


@pytest.mark.slow
@pytest.mark.torchrun
@pytest.mark.nightly
@pytest.mark.parametrize("line", sorted(LONG))
def test_a_long_command_does_what_is_printed(line, shell):
    assert shell(line)
