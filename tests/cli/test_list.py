"""`ssfx list` shows every kind there is, and reads no more than it shows."""

import subprocess
import sys

import pytest
import yaml
from refusals import output, refusal

from ssfx.cli.listing import FOLDERS, KINDS, SHIPPED, file_text
from ssfx.config.groups import YAML_GROUPS
from ssfx.core.paths import conf_dir


def listed(capsys, *words):
    return output(capsys, "list", *words)


@pytest.mark.parametrize("kind", FOLDERS)
def test_files_of_conf_are_listed_with_their_summaries(kind, capsys):
    group = kind.removesuffix("s")
    header, *lines = listed(capsys, kind).splitlines()
    assert header.split() == [group, "summary"]
    paths = sorted((conf_dir() / group).glob("*.yaml"))
    nodes = [yaml.safe_load(path.read_text()) for path in paths]
    summaries = [(node.get(group) or node)["summary"] for node in nodes]
    assert [line.split(maxsplit=1) for line in lines] == [
        [path.stem, summary] for path, summary in zip(paths, summaries, strict=True)
    ]


def test_every_folder_of_conf_is_a_kind():
    assert {f"{group}s" for group in YAML_GROUPS} == set(FOLDERS)


def test_without_a_kind_all_are_listed_in_turn(capsys):
    parts = listed(capsys).removesuffix("\n\n").split("\n\n")
    assert [part.strip() for part in parts] == [listed(capsys, kind).strip() for kind in KINDS]


def test_help_names_every_kind(capsys):
    words = output(capsys, "list", "--help").replace(",", " ").replace(".", " ").split()
    assert set(KINDS) <= set(words)


@pytest.mark.parametrize(("wrong", "right"), [("workload", "workloads"), ("preset", "presets")])
def test_a_misspelt_kind_names_the_nearest(wrong, right, capsys):
    assert refusal(capsys, "list", wrong) == f"ssfx: unknown kind '{wrong}'; did you mean '{right}'?\n"


@pytest.mark.parametrize("kind", ["workloads", "presets"])
def test_listing_files_imports_no_component(kind):
    code = (
        "import sys; from ssfx.cli import main; main(['list', sys.argv[1]]); "
        "print([name for name in ('torch', 'numpy', 'hydra', 'yaml', 'ssfx.schemes') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, kind], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_shipped_tables_are_what_the_declarations_give():
    assert SHIPPED.read_text() == file_text(), "run `make conf` and commit"


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {*FOLDERS, "devices", "links"}))
def test_other_modules_than_the_shipped_ones_are_imported_to_be_listed(kind, capsys, monkeypatch):
    shipped = listed(capsys, kind)
    monkeypatch.setattr("ssfx.cli.listing.modules", lambda: ["schemes/mine.py"])
    assert listed(capsys, kind) == shipped
    monkeypatch.setattr("ssfx.cli.listing.component_table", lambda kind: (("one", "of"), [("my", kind)]))
    assert listed(capsys, kind).splitlines()[-1].split() == ["my", kind]


@pytest.mark.parametrize(("kind", "name"), [("links", "roce_100"), ("devices", "h100")])
def test_links_and_devices_are_listed_from_their_tables(kind, name, capsys):
    assert any(line.split()[0] == name for line in listed(capsys, kind).splitlines())
