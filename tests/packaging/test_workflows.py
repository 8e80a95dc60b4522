"""The workflows run what anybody can type, with every Python and the oldest requirements that pyproject.toml allows."""

import os
import re
import shutil
import subprocess
import tomllib
from typing import Any

import pytest
import yaml
from docs.markdown import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
CONFIGURED: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = CONFIGURED["project"]
PYTHONS = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "Python :: 3." in text]
EXTRAS = PROJECT["optional-dependencies"]
REQUIREMENTS = PROJECT["dependencies"] + [
    line for extra in EXTRAS if extra != "site" for line in EXTRAS[extra] if not line.startswith("ssfx[")
]
"""What `make install` installs: of every extra but the site's."""
COMMAND = re.compile(r'(?:sudo env PATH="\$PATH" )?(?P<oldest>OLDEST=1 )?\.ci/run(?P<targets>( [a-z-]+)*)')

LINES = "git fetch --depth 1 origin main && make lines BASE=FETCH_HEAD"
"""The one step that is no target in a fresh environment: it compares with main's lines, which needs no package."""


class OfTwoKeys(yaml.SafeLoader):
    """Refuses a mapping that has a key twice, of which YAML's own would take the last."""


def _once(loader: OfTwoKeys, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]
    assert len(keys) == len(set(keys)), node.start_mark
    return dict(loader.construct_pairs(node, deep=True))


OfTwoKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _once)


def jobs() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path in WORKFLOWS:
        found |= yaml.load(path.read_text(), OfTwoKeys)["jobs"]
    return found


def commands(job: dict[str, Any]) -> list[re.Match[str]]:
    lines = [line for step in job["steps"] if "run" in step for line in step["run"].splitlines() if line != LINES]
    matches = [COMMAND.fullmatch(line) for line in lines]
    assert None not in matches, lines
    return [match for match in matches if match]


def pythons(job: dict[str, Any]) -> list[str]:
    """Return the Pythons that a job runs with, in order."""
    (asked,) = (step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", ""))
    if asked == "${{ matrix.python }}":
        return list(job["strategy"]["matrix"]["python"])
    return [asked]


def test_every_workflow_parses_and_says_when_and_where_it_runs():
    assert WORKFLOWS
    for path in WORKFLOWS:
        workflow = yaml.load(path.read_text(), OfTwoKeys)
        assert {"push", "pull_request"} <= set(workflow[True])  # YAML 1.1 reads the key `on` so
        assert workflow["permissions"] == {"contents": "read"}
        for name, job in workflow["jobs"].items():
            assert job["runs-on"].startswith("ubuntu-")
            assert 0 < job["timeout-minutes"] <= 360
            assert all(("run" in step) != ("uses" in step) for step in job["steps"])
            first, *others = (step.get("uses", "actions/") for step in job["steps"])
            if name == "publish":  # it has the right to publish, and so no code of the checkout
                assert (job["needs"], job["permissions"]) == ("build", {"id-token": "write"})
                assert "refs/tags/v" in job["if"]
                assert others == ["pypa/gh-action-pypi-publish@release/v1"]
                continue
            assert first.startswith("actions/checkout@v")
            assert all(one.startswith("actions/") for one in others)


def test_every_step_is_a_command_of_the_checkout():
    for name, job in jobs().items():
        assert commands(job) or name == "publish", name
        for command in commands(job):
            for target in command["targets"].split():
                dry = subprocess.run(["make", "--dry-run", "-C", str(ROOT), target], capture_output=True, text=True)
                assert dry.returncode == 0, dry.stderr


def test_lint_tests_coverage_wheel_and_site_are_run():
    done = {target for job in jobs().values() for command in commands(job) for target in command["targets"].split()}
    assert done == {"lint", "test", "test-pages", "test-all", "coverage", "wheel", "site", "release"}


def test_the_tests_run_with_every_python_that_is_promised():
    tested = [
        python
        for job in jobs().values()
        for command in commands(job)
        if "test" in command["targets"].split() and not command["oldest"]
        for python in pythons(job)
    ]
    assert all(isinstance(python, str) for python in tested)  # 3.10 unquoted is 3.1
    assert tested == PYTHONS
    oldest = PROJECT["requires-python"].removeprefix(">=")
    minors = [int(python.removeprefix("3.")) for python in PYTHONS]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert PYTHONS[0] == oldest == CONFIGURED["tool"]["mypy"]["python_version"]
    assert CONFIGURED["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")
    sought = re.findall(r"python(3\.\d+)(?= |;)", (ROOT / "Makefile").read_text())
    assert sought == PYTHONS[::-1]


def test_one_job_runs_the_tests_with_the_oldest_python_and_requirements():
    (job,) = (job for job in jobs().values() if any(command["oldest"] for command in commands(job)))
    assert pythons(job) == PYTHONS[:1]
    assert [command["targets"].split() for command in commands(job)] == [["test"]]


@pytest.mark.parametrize("oldest", [True, False])
def test_the_oldest_job_installs_the_lowest_version_of_every_requirement(tmp_path, oldest):
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    stub = tmp_path / "bin" / "make"
    stub.parent.mkdir()
    stub.write_text('#!/bin/sh\necho "$@" >> calls\ncat ${PIP_CONSTRAINT:-/dev/null} > pinned\n')
    stub.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("OLDEST", "PIP_CONSTRAINT")}
    environment["PATH"] = f"{stub.parent}:{environment['PATH']}"
    environment |= {"OLDEST": "1"} if oldest else {}
    subprocess.run([tmp_path / ".ci" / "run", "wheel"], env=environment, check=True, stdin=subprocess.DEVNULL)
    assert (tmp_path / "calls").read_text() == "wheel\n"
    pinned = (tmp_path / "pinned").read_text().splitlines()
    assert len(pinned) == (len(REQUIREMENTS) if oldest else 0)
    for line, requirement in zip(pinned, REQUIREMENTS, strict=False):
        name, version = re.split(">=|==", requirement)  # each has a lowest version, and no other condition
        assert line == f"{name}=={version}"
