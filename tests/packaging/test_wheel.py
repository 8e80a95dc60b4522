"""A wheel holds the library and the harness with configuration, reference rows and data, and needs few packages."""

import os
import subprocess
import sys
import tomllib
import zipfile

import pytest
from docs.markdown import ROOT

from ssfx.cli import EXTRAS

pytestmark = pytest.mark.slow

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


def test_the_wheel_holds_nothing_else(wheel):
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert tops == {"ssfx", next(top for top in tops if top.endswith(".dist-info"))}
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if "__pycache__" in name or "/runs/" in name]


def test_an_installed_wheel_works_outside_the_checkout(wheel, tmp_path):
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--target", str(target)]
    subprocess.run([*install, str(wheel)], check=True)

    def python(program, *words):
        # The checkout is installed too; the wheel's folder comes first on the path, and has no experiments.
        program = f"import sys; sys.path.insert(0, {str(target)!r}); sys.modules['experiments'] = None; {program}"
        command = [sys.executable, "-c", program, *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    main = "from ssfx.cli import main; sys.exit(main())"
    listed = python(main, "list", "experiments").stdout
    assert "throughput" in listed
    assert "long_quality" in listed
    dry = python(main, "run", "--dry-run", "cluster=local", "device=cpu")
    assert "resnet_tiny" in dry.stdout
    refused = python(main, "figures")
    assert refused.returncode == 2
    assert "ssfx figures is a command of the papers' part" in refused.stderr
    where = "from ssfx.core.paths import conf_dir, reference_dir; print(conf_dir(), reference_dir())"
    assert python(where).stdout.split() == [str(target / "ssfx" / "_conf"), str(target / "ssfx" / "_reference")]


ALONE = """
import os, sys

for extra in {extras!r}:
    for name in extra:
        sys.modules[name] = None  # an import of it fails, as where it is not installed
from ssfx.cli import main

if sys.argv[1] != "attach":
    sys.exit(main())
import torch, torch.distributed as dist, ssfx

dist.init_process_group("gloo")
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sync = ssfx.attach(model, optimizer, scheme="topk", density=0.25)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
# one write: torchrun leaves no buffer, and the lines of two ranks would mix
sys.stdout.write(f"{{dist.get_rank()}} {{float(model.weight.detach().double().sum())}}\\n")
"""


def alone(tmp_path, *words):
    """Run a command of the library as it is without the packages of every extra."""
    script = tmp_path / "alone.py"
    script.write_text(ALONE.format(extras=tuple(EXTRAS.values())))
    return subprocess.run([sys.executable, str(script), *words], capture_output=True, text=True, cwd=tmp_path)


@pytest.mark.nightly
def test_the_library_does_without_the_packages_of_the_extras(tmp_path):
    for words in (
        "plan scheme=ssfusion_oi model=bert_large cluster=64gpu",
        "simulate scheme=ddp,powersgd model=bert_large cluster=64gpu",
        "advise model=bert_large cluster=64gpu",
        "list schemes",
    ):
        done = alone(tmp_path, *words.split())
        assert done.returncode == 0, done.stderr
    ranks = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    done = subprocess.run(
        [*ranks, str(tmp_path / "alone.py"), "attach"], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    sums = [line.split()[1] for line in done.stdout.splitlines() if len(line.split()) == 2]
    assert len(sums) == 2
    assert sums[0] == sums[1]


def test_a_command_whose_packages_are_missing_names_the_extra(tmp_path):
    done = alone(tmp_path, "run", "scheme=ddp", "cluster=local", "device=cpu")
    assert done.returncode == 2
    assert "pip install 'ssfx[lab]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_extras_say_what_they_add():
    """The packages of pyproject.toml, by the names that they are imported by."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    imported = {"scikit-learn": "sklearn"}
    assert len(project["dependencies"]) <= 8
    for extra, modules in EXTRAS.items():
        named = {line.partition(">=")[0] for line in project["optional-dependencies"][extra] if "ssfx[" not in line}
        assert {imported.get(one, one) for one in named} <= set(modules)
        assert set(modules) - {imported.get(one, one) for one in named} <= {"PIL"}
