"""Published gains: every row says where it stands and how it is asked, or why it cannot be."""

from dataclasses import replace

import pytest

from experiments.common.validation import gains
from ssfx.core.case import ClusterChoice
from ssfx.core.files import loads, read
from ssfx.core.paths import data_dir
from ssfx.perf_model.cluster_file import cluster_on

HELD = read(data_dir() / "published_gains.json", loads)
ROWS = [dict(zip(HELD["columns"], row, strict=True)) for row in HELD["rows"]]
MORE = ("samples/s", "TFLOP/s a GPU", "throughput")


def test_every_row_has_an_address_a_place_a_grade_and_words_or_a_reason():
    assert len({row["id"] for row in ROWS}) == len(ROWS) == 90
    for row in ROWS:
        source = HELD["sources"][row["source"]]
        assert all((source["address"], source["opened"], row["place"], row["why"])), row["id"]
        assert row["grade"] in ("A", "B", "C"), row["id"]
        assert bool(row["setting"]) == bool(row["plain"]) == bool(row["compressing"]), row["id"]


def test_a_gain_is_the_ratio_of_the_two_numbers_beside_it():
    for row in ROWS:
        if row["dense"] is not None and row["compressed"] is not None:
            ratio = row["dense"] / row["compressed"]
            found = 1 / ratio if row["metric"] in MORE else ratio
            assert row["gain"] == pytest.approx(found, rel=0.02), row["id"]


@pytest.mark.parametrize(("words", "share", "answer"), [("scheme=ddp", 0.0, 1.0), ("scheme=ddp_fp16", 0.25, None)])
def test_a_row_is_answered_as_its_words_are_simulated(words, share, answer):
    setting = "model=resnet50 batch_size=32 cluster=grace_1gbe cluster.calibration=published"
    row = gains.Gain("x", "s", "m", "ResNet-50", 8, "V100", 1, 2.0, setting, "scheme=ddp", words, share, "because")
    (asked, whole) = (gains._asked(row), gains._asked(replace(row, dense_steps=0.0)))
    assert asked.ours == pytest.approx(answer or 1 / (share + (1 - share) / whole.ours))
    assert asked.right_sign == (answer is None)


def test_words_that_are_refused_are_a_reason_and_not_scored():
    row = gains.Gain("x", "s", "m", "M", None, "", None, 2.0, "model=resnet50", "scheme=ddp", "scheme=nosuch", 0, "-")
    asked = gains._asked(row)
    assert (asked.ours, asked.right_sign) == (None, False)
    assert asked.why.startswith("refused: ")
    assert row.panel == "s: M, GPUs not said"


def test_mpi_receives_and_then_adds_on_the_host():
    """cluster=grace_*: the factor of an all-reduce is 1 + line over host, 6.9 Gb/s by MergeComp."""
    for gbps in (1, 10, 25):
        one = cluster_on(ClusterChoice(f"grace_{gbps}gbe", {"calibration": "published"}), None, "auto")
        line = one.inter.gbps * one.inter.efficiency
        assert one.factors["all_reduce"] == pytest.approx(1 + line / 6.9, rel=0.01)


def test_the_shipped_rows_are_scored_by_logarithms_and_signs():
    (group,) = gains.gains()
    asked = [one for one in gains.answers() if one.ours is not None]
    assert len(asked) == len(group.pairs) >= 25
    assert gains.in_words(asked) in group.notes[0]
    assert gains.log_error(asked) < 0.6
    assert len(gains.lines()) == 90
