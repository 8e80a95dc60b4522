"""A wheel holds everything that a checkout holds for running: configuration, figure scripts, reference rows, data."""

import subprocess
import sys
import zipfile

import pytest
from docs.markdown import ROOT

pytestmark = pytest.mark.slow

CONTENTS = {"conf": "_conf", "experiments": "_experiments", "results/reference": "_reference", "ssfx/data": "data"}


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


def test_the_wheel_holds_configuration_figures_rows_and_data(wheel):
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
        # The checkout is installed too; the wheel's folder comes first on the path.
        program = f"import sys; sys.path.insert(0, {str(target)!r}); {program}"
        command = [sys.executable, "-c", program, *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    main = "from ssfx.cli import main; sys.exit(main())"
    listed = python(main, "list", "experiments")
    assert "throughput" in listed
    assert "convergence" in listed
    assert "ssfusion.fig12" in python(main, "figures")
    folders = python("from ssfx.core.paths import conf_dir, reference_dir; print(conf_dir(), reference_dir())").split()
    assert folders == [str(target / "ssfx" / "_conf"), str(target / "ssfx" / "_reference")]
