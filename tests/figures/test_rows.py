"""Grouping rows into panels, and refusing to draw what a row does not say."""

from dataclasses import replace

import pytest
from figures.synthetic import SCHEMES, row, throughput

from experiments.common.figures.figure import Figure
from experiments.common.figures.style import csv_text, facts, panel_grid, style
from ssfx.core.case import ClusterChoice
from ssfx.core.errors import RunError
from ssfx.lab.results.comparisons import Spread, metric, panels


def test_a_panel_holds_one_workload_with_dense_schemes_first():
    found = panels(throughput())
    assert sorted(panel.case.model for panel in found) == ["gpt2_tiny", "lstm_tiny", "resnet_tiny"]
    for panel in found:
        assert list(panel.bars) == list(SCHEMES)
        assert panel.runs == [3] * len(SCHEMES)
        assert len(panel.single) == 3
        assert panel.world_size == 2


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "simulated"},
        {"hardware": "another machine"},
        {"steps": 12},
        {"threads": 2},
        {"precision": "bf16"},
        {"lr": 0.01},
    ],
)
def test_runs_under_other_conditions_are_never_pooled(other):
    assert [panel.runs for panel in panels([row(), row(**other)])] == [[1], [1]]


def test_a_figure_names_a_cluster_by_its_word():
    figure = Figure("mine.bytes", "bytes", lambda *_: None, needs={"experiment": "throughput", "cluster": "16gpu"})
    here, there = (row(cluster=ClusterChoice(name)) for name in ("16gpu", "64gpu"))
    assert figure.select([here, there]) == [here]


def test_a_label_says_only_what_tells_variants_of_one_scheme_apart():
    rows = [
        row(scheme="per_tensor"),
        row(scheme="per_tensor", density=0.1),
        row(scheme="fused_all", scheme_options={"fusion_degree": 20}),
    ]
    (panel,) = panels(rows)
    assert list(panel.bars) == ["per_tensor 0.01", "per_tensor 0.1", "fused_all"]


def test_world_sizes_get_a_panel_each_and_share_the_single_worker():
    rows = [row(world_size=1), row(world_size=2), row(world_size=4)]
    assert [(panel.world_size, len(panel.single)) for panel in panels(rows)] == [(2, 1), (4, 1)]


def test_one_worker_alone_is_nothing_to_compare():
    assert panels([row(world_size=1)]) == []


def test_a_metric_without_a_value_is_an_error_that_names_the_row():
    bad = row(metrics={"throughput_samples_per_s": None})
    with pytest.raises(RunError, match=bad.run_id):
        metric(bad, "throughput_samples_per_s")


def test_a_metric_that_does_not_exist_is_a_mistake_in_the_figure():
    with pytest.raises(ValueError, match="iteration_ms"):
        metric(row(), "iteration_ms")


def test_a_spread_is_the_median_and_the_full_range():
    values = [row(metrics={"iteration_s": float(value)}, repeat=value) for value in (1, 5, 2, 4)]
    assert Spread.of(values, "iteration_s") == Spread(3.0, 1.0, 5.0, 4)


def simulated(calibration, date="2026-01-01", **changes):
    extrapolated = {"extrapolated": changes.pop("extrapolated", [])}
    return row(kind="simulated", calibration=calibration, date=date, manifest=extrapolated, cluster="64gpu", **changes)


def test_simulated_runs_get_a_panel_for_each_kind_of_costs():
    found = panels([row(), simulated("nominal:00000000"), simulated("published:00000000")])
    assert [panel.how for panel in found] == ["measured", "simulated (nominal)", "simulated (published)"]
    assert [panel.name for panel in found][1:] == [
        "resnet_tiny on 64gpu, simulated (nominal)",
        "resnet_tiny on 64gpu, simulated (published)",
    ]
    assert [panel.columns()["origin"] for panel in found] == [panel.how for panel in found]


def test_a_newer_calibration_replaces_the_older_one():
    old = [simulated("nominal:00000000", scheme=scheme, world_size=p) for scheme in ("ddp", "wfbp") for p in (1, 64)]
    new = [simulated("nominal:11111111", "2026-01-02", scheme="ddp", world_size=p) for p in (1, 64)]
    (panel,) = panels([*old, *new])
    assert panel.bars == {"ddp": [new[1]]}
    assert panel.single == [new[0]]


def test_extrapolated_bars_are_marked():
    (panel,) = panels(
        [
            simulated("nominal:00000000", scheme="ddp"),
            simulated("nominal:00000000", scheme="fused_all", extrapolated=["dgc: 9 where 1 .. 5 is known"]),
        ]
    )
    assert [panel.mark(label) for label in panel.bars] == [
        {"sent": "", "extrapolated": "no"},
        {"sent": "", "extrapolated": "yes"},
    ]
    caption = " ".join(facts([panel]))
    assert "* extrapolated" in caption
    assert "Simulated: one step in virtual time" in caption
    assert "n = 1" not in caption
    with style():
        _, (axis,) = panel_grid([panel], [], "samples/s")
        assert [label.get_text() for label in axis.get_yticklabels()] == ["ddp", "fused_all *"]
        assert axis.texts[0].get_text() == "simulated (nominal), P = 2, batch 32 per worker\n64gpu"


def test_what_was_sent_far_beyond_what_was_asked_for_is_marked():
    (panel,) = panels(
        [
            row(scheme="ddp", metrics={"sent_bytes": 4e6}),
            row(scheme="ssfusion_oi", compressor="dgc", density=0.01, metrics={"achieved_density": 0.93}),
            row(scheme="topk", compressor="topk", density=0.01, metrics={"achieved_density": 0.011}),
        ]
    )
    assert [panel.marked(label) for label in panel.bars] == ["ddp", "topk", "ssfusion_oi (sent 93 %)"]
    own = [runs[0] for runs in panel.bars.values()]
    for sent, contributed, marks in (  # a gather passes on what others contribute
        ((4e6, 1e5, 4e6), (2e6, 5e4, 2e6), ["", "", "dense"]),
        ((4e6, 9e6, 3e6), (2e6, 5.4e4, 1.6e6), ["", "", "over 40 %"]),
        ((4e6, 9e6, 3e6), (2e6, 8.2e4, None), ["", "over 2.05 %", ""]),
    ):
        bytes_of = zip(own, sent, contributed, strict=True)
        (panel,) = panels(
            [
                replace(
                    one,
                    origin=replace(one.origin, kind="simulated"),
                    metrics={"sent_bytes": all_sent, "contributed_bytes": mine},
                )
                for one, all_sent, mine in bytes_of
            ]
        )
        assert [panel.mark(label)["sent"] for label in panel.bars] == marks


def test_real_runs_have_no_column_for_extrapolation():
    (panel,) = panels([row()])
    assert panel.mark("ddp") == {"sent": ""}
    assert "extrapolated" not in csv_text([panel.columns()])
    assert csv_text([{"a": 1}, {"a": 2, "b": 3}]) == "a,b\n1,\n2,3\n"
