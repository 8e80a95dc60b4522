"""Drawing many figures: what is left alone, what fails alone, what has only a placeholder, and how they are named."""

import csv
import json
import re

import pytest
from figures.synthetic import row
from figures.synthetic_clusters import clusters
from PIL import Image

from experiments.common.figures import drawing
from experiments.common.figures.discovery import chosen, discover
from experiments.common.figures.drawing import MANIFEST, check_all, draw_all
from ssfx.cli import main
from ssfx.core.errors import ConfigError, RunError
from ssfx.lab.results.store import Store, export

SMALL = ["ssfusion.eq1", "ssfusion.fig3"]
"""Figures that are computed, quickly."""


def states(drawn):
    return {one.name: one.state for one in drawn}


def names(words):
    return [figure.name for figure in chosen(words)]


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("ssfusion.tabel1", "did you mean 'ssfusion.table1'?"),
        ("ssfusion.figg11", "did you mean 'ssfusion.fig11'?"),
        ("mikro", "did you mean 'micro'?"),
        ("ssfusion.fig99", "ssfusion has fig1, fig2,"),  # never fig9: another number is another figure
        ("ssfusion.fig111", "ssfusion has fig1, fig2,"),
        ("fig99", "the papers are acpsgd,"),
        ("table", "the papers are acpsgd,"),
        ("12", "choose one of: acpsgd.fig12, ssfusion.fig12"),
    ],
)
def test_an_unknown_figure_is_answered_by_the_nearest_or_by_what_there_is(word: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(hint)):
        chosen([word])


@pytest.mark.slow
def test_what_has_not_changed_is_left_alone_and_what_has_is_drawn(tmp_path, monkeypatch):
    assert set(states(draw_all(SMALL, [], tmp_path)).values()) == {"drawn"}
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = draw_all(SMALL, [], tmp_path)
    assert set(states(again).values()) == {"unchanged"}
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert [len(one.files) for one in again] == [4, 4]

    (tmp_path / "ssfusion.eq1.csv").write_text("touched")
    assert states(draw_all(SMALL, [], tmp_path)) == {"ssfusion.eq1": "drawn", "ssfusion.fig3": "unchanged"}
    monkeypatch.setattr(drawing.Inputs, "_package", "other code")
    assert set(states(draw_all(SMALL, [], tmp_path)).values()) == {"drawn"}


def test_a_damaged_manifest_only_means_that_all_is_drawn_again(tmp_path):
    draw_all(["ssfusion.fig3"], [], tmp_path)
    (tmp_path / MANIFEST).write_text("{broken")
    assert states(draw_all(["ssfusion.fig3"], [], tmp_path)) == {"ssfusion.fig3": "drawn"}
    assert json.loads((tmp_path / MANIFEST).read_text())["ssfusion.fig3"]["files"]


def test_other_rows_draw_a_figure_again(tmp_path):
    rows = [row(world_size=1), row(), row(scheme="per_tensor")]
    for expected, used in (("drawn", rows), ("unchanged", rows), ("drawn", rows[:2])):
        assert states(draw_all(["ssfusion.fig13_here"], used, tmp_path)) == {"ssfusion.fig13_here": expected}


def test_a_figure_that_shows_none_of_ones_own_runs_is_copied_from_where_it_was_drawn(tmp_path):
    name, rows, there, here = "ssfusion.fig13_here", [row(world_size=1), row()], tmp_path / "docs", tmp_path / "here"
    (first,) = draw_all([name], rows, there)
    (one,) = draw_all([name], rows, here, committed=there)
    assert (one.state, [path.suffix for path in one.files]) == ("committed", [".png", ".csv"])
    assert one.files[0].read_bytes() == first.files[0].read_bytes()
    assert states(draw_all([name], rows, here, committed=there, own=frozenset([rows[1].run_id]))) == {name: "drawn"}
    assert states(draw_all([name], rows, here, committed=there)) == {name: "unchanged"}
    (there / f"{name}.csv").write_text("edited")
    assert states(draw_all([name], rows, tmp_path / "third", committed=there)) == {name: "drawn"}


@pytest.mark.nightly
@pytest.mark.slow
def test_several_processes_give_the_same_files(tmp_path):
    several = ["ssfusion.eq1", "ssfusion.eq3", "ssfusion.eq4", "ssfusion.fig3"]
    one, two = (draw_all(several, [], tmp_path / str(count), processes=count) for count in (1, 2))
    assert [figure.state for figure in two] == ["drawn"] * 4
    for path in (path for figure in one for path in figure.files):
        assert (tmp_path / "2" / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_figure_without_rows_has_a_picture_that_says_so(tmp_path):
    (one,) = draw_all(["ssfusion.fig16"], [], tmp_path, placeholders=True)
    assert (one.state, one.said) == ("missing", "ssfx run experiment=bandwidth")
    (line,) = csv.DictReader((tmp_path / "ssfusion.fig16.csv").read_text().splitlines())
    assert line == {"figure": "ssfusion.fig16", "state": "missing", "command": "ssfx run experiment=bandwidth"}
    with Image.open(tmp_path / "ssfusion.fig16.png") as image:
        assert image.info["Runs"] == ""
    (again,) = draw_all(["ssfusion.fig16"], [], tmp_path, placeholders=True)
    assert (again.state, len(again.files)) == ("missing", 4)
    (without,) = draw_all(["ssfusion.fig16"], [], tmp_path / "none")
    assert (without.state, without.files) == ("missing", ())


def test_a_row_that_cannot_be_used_takes_only_its_own_figure_along(tmp_path):
    bad = row(scheme="per_tensor", experiment="missing_rate")
    found = states(draw_all(["ssfusion.table1", "ssfusion.fig3"], [bad], tmp_path))
    assert found == {"ssfusion.table1": "failed", "ssfusion.fig3": "drawn"}


def test_a_corrupt_line_is_named_and_stops_the_figures_of_its_file(tmp_path, capsys, monkeypatch):
    reference = tmp_path / "reference"
    export([one for one in clusters() if one.case.experiment == "density"], reference / "density.jsonl")
    with (reference / "density.jsonl").open("a") as file:
        file.write("{broken\n")
    rows, unreadable = Store(tmp_path, reference).readable()
    (one,) = unreadable
    assert "density.jsonl:" in one.message
    drawn = draw_all(["ssfusion.fig15", "ssfusion.fig3"], rows, tmp_path / "out", unreadable=unreadable)
    assert states(drawn) == {"ssfusion.fig3": "drawn", "ssfusion.fig15": "failed"}
    assert drawn[1].said == one.message

    monkeypatch.setattr("ssfx.lab.results.store.reference_dir", lambda: reference)
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path))
    assert main(["figures", "ssfusion.fig15", "ssfusion.fig3"]) == 1
    said = capsys.readouterr()
    assert "density.jsonl:" in said.err
    assert "1 drawn, 0 unchanged, 0 missing, 1 failed" in said.out


def test_rows_of_other_experiments_are_passed_over_and_every_damaged_line_is_told(tmp_path):
    reference, every = tmp_path / "reference", clusters()
    export(every, reference / "all.jsonl")
    store, kinds = Store(tmp_path, reference), {one.case.experiment for one in every}
    assert len(kinds) > 1
    for kind in kinds:
        assert store.readable(kind.__eq__) == ([one for one in every if one.case.experiment == kind], [])
    lines = (reference / "all.jsonl").read_text()
    (reference / "all.jsonl").write_text(lines + "{broken\n")
    for kind in kinds:
        rows, (one,) = store.readable(kind.__eq__)
        assert rows == [one for one in every if one.case.experiment == kind]
        assert one.kin == tuple(row.case for row in rows)
    other = next(one for one in every if one.case.experiment != every[0].case.experiment)
    (reference / "all.jsonl").write_text(lines.replace(other.run_id, "0" * len(other.run_id)))
    assert store.readable(every[0].case.experiment.__eq__)[1] == []
    rows, (changed,) = store.readable(other.case.experiment.__eq__)
    assert other.case not in [row.case for row in rows]
    assert "all.jsonl" in changed.message


def test_a_figure_says_which_experiments_it_reads():
    figures = discover().values()
    for one in clusters():
        for figure in figures:
            assert figure.reads(one.case.experiment) or not figure.shows(one.case)
    assert not discover()["ssfusion.conditions"].reads("density")


def test_a_corrupt_row_of_a_run_is_told_by_its_case(tmp_path):
    store = Store(tmp_path, tmp_path / "none")
    one = row()
    store.save(one)
    (store.run_dir(one.case) / "case.json").write_text(one.case.to_json())
    (store.run_dir(one.case) / "row.json").write_text("{broken")
    rows, (broken,) = store.readable()
    assert rows == []
    assert discover()["ssfusion.fig11_here"].shows(broken.kin[0])
    assert not discover()["ssfusion.fig11"].shows(broken.kin[0])


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("ssfusion.fig11", ["ssfusion.fig11"]),
        ("ssfusion.fig05a", ["ssfusion.fig5"]),
        ("ssfusion.table01", ["ssfusion.table1"]),
        ("fig11_here", ["ssfusion.fig11_here"]),
        ("achieved_density", ["codecs.achieved_density"]),
        ("micro.fig1", ["micro.fig1"]),
        ("ssfusion.fig2", ["ssfusion.fig2", "ssfusion.fig2.quality"]),
        ("s2reducer.fig7", ["s2reducer.fig4"]),
    ],
)
def test_a_name_may_be_short_or_spelt_as_before(word, expected):
    assert names([word]) == expected


def test_a_paper_names_all_its_figures_in_its_order():
    found = names(["ssfusion"])
    assert {name.partition(".")[0] for name in found} == {"ssfusion"}
    assert found.index("ssfusion.fig9") < found.index("ssfusion.fig10") < found.index("ssfusion.table1")


def test_one_number_in_two_papers_is_refused(monkeypatch):
    found = discover()
    twins = {"one.fig1": found["ssfusion.fig1"], "two.fig1": found["ssfusion.fig3"]}
    renamed = {name: figure.__class__(**{**figure.__dict__, "name": name}) for name, figure in twins.items()}
    monkeypatch.setattr("experiments.common.figures.discovery.discover", lambda: renamed)
    with pytest.raises(ConfigError, match=r"several papers have a 'fig1'; say which: one\.fig1, two\.fig1"):
        names(["fig1"])


def test_a_check_notices_every_kind_of_change(tmp_path):
    rows = [row(world_size=1), row(), row(scheme="per_tensor")]
    draw_all(["ssfusion.fig11_here"], rows, tmp_path)
    assert [path.name for path in check_all(["fig11_here"], rows, tmp_path)] == ["ssfusion.fig11_here.csv"]

    changed = [*rows[1:], row(world_size=1, metrics={"throughput_samples_per_s": 5.0})]
    with pytest.raises(RunError, match=r"fig11_here\.csv is not what the rows give now"):
        check_all(["fig11_here"], changed, tmp_path)

    with Image.open(tmp_path / "ssfusion.fig11_here.png") as image:
        image.save(tmp_path / "ssfusion.fig11_here.png")
    with pytest.raises(RunError, match=r"fig11_here\.png was not drawn from"):
        check_all(["fig11_here"], rows, tmp_path)

    (tmp_path / "ssfusion.fig11_here.csv").unlink()
    with pytest.raises(RunError, match=r"fig11_here\.csv is not what the rows give now"):
        check_all(["fig11_here"], rows, tmp_path)
