"""The lock of the papers' environment fits pyproject.toml, and the container installs it. Nothing is installed here."""

import re
import subprocess
import tomllib

import pytest
from docs.markdown import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
REQUIRED = [
    line
    for line in [*PROJECT["dependencies"], *(line for extra in EXTRAS if extra != "site" for line in EXTRAS[extra])]
    if not line.startswith("ssfx[")
]
"""What `make install` installs."""
TEXT = (ROOT / "requirements.lock").read_text()
LOCKED = [line for line in TEXT.splitlines() if not line.startswith("#")]
CONTAINER = (ROOT / "Containerfile").read_text()


def locked(lines=LOCKED):
    """Return the version of every package, by its name."""
    pairs = [re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)", line) for line in lines]
    assert None not in pairs
    return {canonicalize_name(pair[1]): pair[2] for pair in pairs if pair}


@pytest.mark.parametrize("line", REQUIRED)
def test_every_requirement_is_locked_within_its_bounds(line):
    wanted = Requirement(line)
    assert wanted.specifier.contains(locked()[canonicalize_name(wanted.name)], prereleases=True)


def test_the_lock_is_of_the_oldest_python_that_the_project_has():
    python = PROJECT["requires-python"].removeprefix(">=")
    assert f"--python-version {python}" in TEXT.splitlines()[1]
    assert f"\nFROM python:{python}-slim\n" in CONTAINER
    assert len(locked()) == len(LOCKED)  # no package twice


def test_the_container_installs_what_is_locked_but_cuda():
    """The lines that its commands hand to pip, as a shell makes them."""
    left_out = re.search(r'^ARG LEAVE_OUT="(.*)"$', CONTAINER, re.MULTILINE)
    assert left_out
    found = [
        subprocess.run(["sh", "-c", command], cwd=ROOT, env={"LEAVE_OUT": left_out[1]}, capture_output=True, text=True)
        for command in re.findall(r"^RUN (grep .*) \| pip install ", CONTAINER, re.MULTILINE)
    ]
    torch, rest = (locked([line for line in one.stdout.splitlines() if line[0] != "#"]) for one in found)
    assert set(torch) == {"torch", "torchvision"}
    assert {canonicalize_name(Requirement(line).name) for line in REQUIRED} <= set(rest)
    assert {name.partition("-")[0] for name in set(locked()) - set(rest)} == {"nvidia", "cuda", "triton"}


def test_the_container_shows_the_help():
    assert CONTAINER.endswith('ENTRYPOINT ["ssfx"]\nCMD ["--help"]\n')
