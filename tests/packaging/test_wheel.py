"""A wheel holds the library and the harness with configuration, reference rows and data, and needs few packages."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from docs.markdown import ROOT

from ssfx.cli import EXTRAS, SUMMARIES

CONTENTS = {"conf": "_conf", "results/reference": "_reference", "ssfx/data": "data"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    done = subprocess.run([*build, "--wheel-dir", str(out), str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = out.glob("ssfx-*-py3-none-any.whl")
    return path


def tracked(folder):
    """Return the files of `folder` that git tracks, or all but caches in a copy without git."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", folder], capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        return listed.stdout.splitlines()
    found = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return [str(path.relative_to(ROOT)) for path in found]


def test_the_wheel_holds_configuration_rows_and_data(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    for folder, place in CONTENTS.items():
        for name in tracked(folder):
            assert f"ssfx/{place}{name.removeprefix(folder)}" in inside, name
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    assert "ssfx/py.typed" in inside  # type checkers read a package without it as untyped


def test_the_wheel_holds_nothing_else(wheel):
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert tops == {"ssfx", next(top for top in tops if top.endswith(".dist-info"))}
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if "__pycache__" in name or "/runs/" in name]


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return a function that runs Python in an empty folder, where ssfx is of the wheel and no extra is installed."""
    site, here = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("empty")
    zipfile.ZipFile(wheel).extractall(site)
    absent = ["experiments", *(name for names in EXTRAS.values() for name in names)]
    (site / "sitecustomize.py").write_text(f"import sys; sys.modules.update(dict.fromkeys({absent}))")

    def python(*words, **environment):
        command = [sys.executable, *words]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SSFX_"))}
        environment = {**kept, "PYTHONPATH": str(site), **environment}
        return subprocess.run(command, cwd=here, capture_output=True, text=True, env=environment)

    return python


HELP = """
import contextlib, io, json
from ssfx.cli import main, verbs

for verb in verbs():
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main([verb, "-h"])
    print(json.dumps([verb, code, out.getvalue(), err.getvalue()]))
"""


def test_the_help_of_an_installed_wheel(installed):
    """Of all verbs; what is in the repository alone is said to be there."""
    for words in ((), ("-h",), ("--help",)):
        done = installed("-m", "ssfx", *words)
        assert done.returncode == 0, done.stderr
        assert "  doctor " in done.stdout
        assert done.stdout.endswith("In the repository of ssfx alone:\n  figures, report, status, validate\n")
    answers = {verb: rest for verb, *rest in map(json.loads, installed("-c", HELP).stdout.splitlines())}
    assert list(answers) == list(SUMMARIES)
    for verb, (code, out, err) in answers.items():
        if verb in ("figures", "report", "status", "validate"):
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert f"ssfx {verb} is a command of the papers' part" in err
        else:
            assert (code, err) == (0, "")
            assert out.startswith(f"Usage: ssfx {verb}")


def test_tab_completes_the_verbs_that_an_installed_wheel_has(installed):
    def offered(words):
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_SSFX_COMPLETE": "bash_complete"}
        done = installed("-m", "ssfx", **asked)
        assert done.stderr == ""
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert offered("ssfx ") == [verb for verb in SUMMARIES if verb not in ("figures", "report", "status", "validate")]
    assert {"network", "compressors"} <= set(offered("ssfx profile "))
    assert "scheme=ssfusion_oi" in offered("ssfx run scheme=")


def test_the_readmes_answer_comes_from_an_installed_wheel(installed):
    command, answer = re.search(r"\$ ssfx (advise .*)\n((?:.*\n)*?)```", (ROOT / "README.md").read_text()).groups()
    done = installed("-m", "ssfx", *command.split())
    assert (done.returncode, done.stdout) == (0, answer), done.stderr


@pytest.mark.slow
def test_an_installed_wheel_says_what_runs_without_the_extras(installed):
    doctor = installed("-m", "ssfx", "doctor")
    assert doctor.returncode == 0, doctor.stderr
    assert "installed       from a wheel" in doctor.stdout
    assert "ssfx.attach, plan, simulate, advise: runs\n" in doctor.stdout
    assert "ssfx run and profile: does not run, without pip install 'ssfx[lab]'" in doctor.stdout
    run = installed("-m", "ssfx", "run", "scheme=ddp", "cluster=local", "device=cpu")
    assert run.returncode == 2
    assert "pip install 'ssfx[lab]'" in run.stderr
    assert len(run.stderr.splitlines()) == 1


def test_an_installed_wheel_has_its_own_configuration(installed):
    listed = installed("-m", "ssfx", "list", "experiments").stdout
    assert "throughput" in listed
    assert "long_quality" in listed
    assert "resnet_tiny" in installed("-m", "ssfx", "run", "--dry-run", "cluster=local", "device=cpu").stdout
    where = "from ssfx.core.paths import conf_dir, reference_dir; print(conf_dir(), reference_dir())"
    conf, reference = map(Path, installed("-c", where).stdout.split())
    assert (conf.name, reference.name) == ("_conf", "_reference")
    assert conf.parent == reference.parent != ROOT / "ssfx"


ATTACH = """
import sys, torch, torch.distributed as dist, ssfx

dist.init_process_group("gloo")
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sync = ssfx.attach(model, optimizer, scheme="topk", density=0.25)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
# one write: torchrun leaves no buffer, and the lines of two ranks would mix
sys.stdout.write(f"{dist.get_rank()} {float(model.weight.detach().double().sum())}\\n")
"""


@pytest.mark.nightly
def test_the_library_does_without_the_packages_of_the_extras(installed, tmp_path):
    for words in (
        "plan scheme=ssfusion_oi model=bert_large cluster=64gpu",
        "simulate scheme=ddp,powersgd model=bert_large cluster=64gpu",
        "advise model=bert_large cluster=64gpu",
        "list schemes",
    ):
        done = installed("-m", "ssfx", *words.split())
        assert done.returncode == 0, done.stderr
    script = tmp_path / "train.py"
    script.write_text(ATTACH)
    ranks = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", str(script))
    done = installed(*ranks, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    sums = [line.split()[1] for line in done.stdout.splitlines() if len(line.split()) == 2]
    assert len(sums) == 2
    assert sums[0] == sums[1]


def test_the_extras_say_what_they_add():
    """The packages of pyproject.toml, by the names that they are imported by."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    imported = {"scikit-learn": "sklearn"}
    assert len(project["dependencies"]) <= 8
    for extra, modules in EXTRAS.items():
        named = {line.partition(">=")[0] for line in project["optional-dependencies"][extra] if "ssfx[" not in line}
        assert {imported.get(one, one) for one in named} <= set(modules)
        assert set(modules) - {imported.get(one, one) for one in named} <= {"PIL"}
