"""`ssfx list` shows every kind there is, and reads no more than it shows."""

import re
import subprocess
import sys
from dataclasses import fields

import pytest
import yaml
from refusals import output, refusal

from ssfx.cli.listing import DATA, FOLDERS, KINDS, SHIPPED, file_text
from ssfx.collectives import collectives
from ssfx.config.groups import YAML_GROUPS, registry
from ssfx.config.option_text import component_text, value
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


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {*FOLDERS, *DATA}))
def test_other_modules_than_the_shipped_ones_are_imported_to_be_listed(kind, capsys, monkeypatch):
    shipped = listed(capsys, kind)
    monkeypatch.setattr("ssfx.cli.listing.modules", lambda: ["schemes/mine.py"])
    assert listed(capsys, kind) == shipped
    monkeypatch.setattr("ssfx.cli.listing.component_table", lambda kind: (("one", "of"), [("my", kind)]))
    assert listed(capsys, kind).splitlines()[-1].split() == ["my", kind]


@pytest.mark.parametrize(("kind", "name"), [("links", "roce_100"), ("devices", "h100"), ("published", "q011")])
def test_links_and_devices_are_listed_from_their_tables(kind, name, capsys):
    assert any(line.split()[0] == name for line in listed(capsys, kind).splitlines())


@pytest.mark.parametrize("kind", ["schemes", "compressors", "memories", "collectives", "datasets", "models"])
def test_a_choice_is_listed_with_its_source_and_every_option(kind, capsys):
    catalog = collectives if kind == "collectives" else registry({"memories": "memory"}.get(kind, kind[:-1]))
    for entry in catalog:
        text = component_text(entry)
        assert text.startswith(f"{entry.name}: {entry.summary}.")
        held = getattr(entry, "defaults", None) or getattr(entry, "options", None)
        given = re.findall(r"^    (\w+)=(.*?) \(", text, flags=re.MULTILINE)
        assert given == [(one.name, value(getattr(held, one.name))) for one in fields(held)] if held else not given
    assert listed(capsys, kind, entry.name) == f"{text}\n"


def test_an_option_is_explained_where_it_is_declared(capsys):
    assert "the loop of the authors' code" in listed(capsys, "compressors", "dgc")
    assert "    mode=fast (fast, faithful)" in listed(capsys, "compressors", "dgc")
    assert "\n`dense_steps`: so many steps of training are sent dense" in listed(capsys, "schemes", "oktopk")


def test_other_choices_are_their_file_or_their_line(capsys):
    assert listed(capsys, "clusters", "64gpu") == (conf_dir() / "cluster" / "64gpu.yaml").read_text()
    assert listed(capsys, "devices", "h100").startswith("device: h100\nGiB: ")
    assert "--json lists a whole kind" in refusal(capsys, "list", "devices", "h100", "--json")
    assert refusal(capsys, "list", "devices", "h10") == "ssfx: unknown device 'h10'; did you mean 'h100'?\n"
    assert refusal(capsys, "list", "schemes", "oktop") == "ssfx: unknown scheme 'oktop'; did you mean 'oktopk'?\n"
