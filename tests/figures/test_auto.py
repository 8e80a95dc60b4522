"""scheme=auto in figures: beside the papers' schemes in its own colour, never one of them, in no verdict."""

import pytest
from evaluation.long_runs import long_row
from figures.synthetic import row
from figures.test_tables import colours, rgb

from experiments.common.figures.auto import AUTO, COLOUR, LABEL, auto_of, budget_said
from experiments.common.figures.discovery import discover
from ssfx.core.paths import reference_dir
from ssfx.lab.results.comparisons import cells
from ssfx.lab.results.store import Store

FIGURES = discover()
SIMULATED = {
    "throughput": ("ssfusion.fig11",),
    "breakdown": ("ssfusion.fig13",),
    "compressors": ("ssfusion.fig14",),
    "density": ("ssfusion.fig15",),
    "bandwidth": ("ssfusion.fig16",),
    "large_models": ("ssfusion.fig17",),
    "conditions": ("ssfusion.conditions",),
    "acpsgd_models": ("acpsgd.fig2", "acpsgd.fig3", "acpsgd.fig8", "acpsgd.table3"),
    "acpsgd_sweeps": ("acpsgd.fig11", "acpsgd.fig12", "acpsgd.fig13"),
    "mergecomp_clusters": ("mergecomp.fig7", "mergecomp.fig8"),
    "micro_clusters": ("micro.fig6",),
}
IN_TRAINING = {
    "ssfusion.fig12": ("ddp", "ssfusion_oi"),
    "acpsgd.fig6": ("ddp", "powersgd", "acpsgd"),
    "micro.fig4": ("topk", "cltk", "micro"),
}
HERE = ("ssfusion.fig11_here", "ssfusion.fig13_here")


@pytest.fixture(scope="module")
def rows():
    return Store(reference_dir().parent, reference_dir()).reference_rows()


def without_auto(rows):
    return [one for one in rows if one.case.scheme != AUTO]


def shown_in(png):
    return rgb(COLOUR) in colours(png)[0]


@pytest.mark.pages
@pytest.mark.parametrize("name", [name for names in SIMULATED.values() for name in names])
def test_a_figure_of_simulated_schemes_shows_auto_and_names_its_budget(rows, name, tmp_path):
    figure = FIGURES[name]
    own = figure.select(rows)
    assert AUTO in {one.case.scheme for one in own}
    png, *_ = figure.draw(own, tmp_path / "with")
    assert shown_in(png)
    assert any("not of the paper" in note for note in figure.notes)
    png, *_ = figure.draw(without_auto(own), tmp_path / "without")
    assert not shown_in(png)


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES.values(), ids=lambda figure: figure.name)
def test_no_verdict_depends_on_auto(rows, figure):
    own = figure.select(rows)
    if without_auto(own) != own:
        assert figure.judge(own) == figure.judge(without_auto(own))


@pytest.mark.parametrize("name", ["ssfusion.fig16", "ssfusion.fig17"])
def test_the_best_scheme_is_one_of_the_paper(rows, name):
    figure = FIGURES[name]
    own = figure.select(rows)
    said, before = (figure.finding(some) for some in (own, without_auto(own)))
    assert "(scheme=auto, not of the paper:" in said
    assert said.split(" (scheme=auto")[0] in before
    assert "auto ranks_per_node" not in said


def test_auto_is_not_beside_printed_times_unless_it_has_the_compressor_of_the_others(rows):
    found = cells([one for one in rows if one.case.experiment in ("density", "compressors")])
    shown = {(cell.case.experiment, cell.calibration): auto_of(cell) is not None for cell in found}
    assert shown == {
        ("density", "nominal"): True,
        ("density", "published"): False,
        ("compressors", "nominal"): True,
        ("compressors", "published"): True,
    }


def trained(scheme, seed):
    """Return a row with a curve, as a long training run leaves it."""
    sparse = {"compressor": "dgc", "density": 0.01, "memory": "residual"}
    given = {"ddp": {}, AUTO: {"density": 0.05, "memory": "residual"}}.get(scheme, sparse)
    given |= {"compressor": scheme, "density": None} if scheme in ("powersgd", "acpsgd") else {}
    return long_row(scheme, 0.5, seed, **given)


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_TRAINING)
def test_a_figure_of_quality_shows_runs_of_auto(name, tmp_path):
    figure = FIGURES[name]
    before = figure.select([trained(scheme, seed) for scheme in IN_TRAINING[name] for seed in range(3)])
    after = figure.select([*before, *(trained(AUTO, seed) for seed in range(2))])
    assert len(after) == len(before) + 2
    for shown, drawn in ((before, False), (after, True)):
        png, _, svg, data = figure.draw(shown, tmp_path)
        assert shown_in(png) is drawn
        assert (AUTO in data.read_text()) is drawn
        assert svg.exists()
    assert figure.judge(before) == figure.judge(after)


@pytest.mark.slow
@pytest.mark.parametrize("name", HERE)
def test_a_figure_of_runs_here_shows_auto(name, tmp_path):
    figure = FIGURES[name]
    dense = [row(scheme="ddp"), row(scheme="ssgd", world_size=1), row(scheme="fused_all")]
    auto = row(scheme=AUTO, compressor=None, memory="residual", density=0.05)
    assert not shown_in(figure.draw(dense, tmp_path)[0])
    assert shown_in(figure.draw([*dense, auto], tmp_path)[0])
    assert AUTO not in figure.finding([*dense, auto])


def test_the_budget_is_named_as_it_was_given():
    assert budget_said([row(scheme="ddp")]) == []
    plain = row(scheme=AUTO, compressor=None, density=None)
    assert budget_said([plain])[0].endswith("(quality=normal).")
    kept = row(scheme=AUTO, compressor=None, density=0.05)
    strict = row(scheme=AUTO, compressor=None, density=None, scheme_options={"quality": "strict"})
    assert budget_said([kept, strict])[0].endswith("(density=0.05, quality=strict).")
    assert LABEL in budget_said([kept])[0]
