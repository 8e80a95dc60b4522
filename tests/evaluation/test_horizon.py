"""The figure of long horizons on made-up rows: gaps and extra steps follow the curves, and ties and gaps are said."""

from csv import DictReader
from pathlib import Path
from typing import Any

import pytest
from evaluation.long_runs import long_row

from experiments.common.figures.discovery import discover
from experiments.common.pages.horizon import horizon_block
from ssfx.core.rows import Row

FIGURE = discover()["horizon.quality"]
STEPS = (1000, 2000, 4000, 6000, 8000, 10000)
TOPK: dict[str, Any] = {"compressor": "topk", "density": 0.01, "memory": "residual"}


def run(scheme: str, values: tuple[float, ...], seed: int = 0, **case: Any) -> Row:
    """Return a run whose quality at STEPS is `values`."""
    curve: dict[str, list[float | None]] = {"step": [*map(float, STEPS)], "top1": [*values]}
    given = {"experiment": "horizon", "world_size": 2, "target_metric": "top1", "target_value": 0.6, "steps": 10000}
    return long_row(scheme, values[-1], seed, curve=curve, **given | case)


DENSE = (0.2, 0.3, 0.4, 0.5, 0.6, 0.6)
SLOW = (0.1, 0.2, 0.3, 0.4, 0.5, 0.57)


def rows(**changed: tuple[float, ...]) -> list[Row]:
    seeds = [run("ddp", DENSE), run("ddp", (*DENSE[:4], 0.63, 0.63), 1), run("ddp", DENSE, lr=0.5)]
    return [*seeds, run("per_tensor", changed.get("topk", SLOW), **TOPK)]


def test_a_method_that_lags_and_ends_lower_has_both_numbers(tmp_path: Path) -> None:
    said = FIGURE.finding(FIGURE.select(rows()))
    assert said == "vgg_small_cifar10 (dense seeds within 5.0%): top-k, 1 % +5.0%, +100% and +50% steps"
    FIGURE.draw(FIGURE.select(rows()), tmp_path)
    with (tmp_path / "horizon.quality.csv").open() as file:
        table = [line for line in DictReader(file) if line["method"] == "top-k, 1 %"]
    assert [(line["dense_steps"], line["steps"]) for line in table] == [
        ("1000", "2000"),
        ("2000", "4000"),
        ("4000", "6000"),
        ("6000", "8000"),
        ("8000", "never"),
    ]


def test_a_method_that_catches_up_says_so() -> None:
    said = FIGURE.finding(FIGURE.select(rows(topk=(0.1, 0.2, 0.35, 0.5, 0.6, 0.61))))
    assert "top-k, 1 % -1.7%, +67% and +17% steps" in said
    never = FIGURE.finding(FIGURE.select(rows(topk=(0.1, 0.2, 0.25, 0.25, 0.25, 0.25))))
    assert "top-k, 1 % +58.3%, never and never steps" in never


def test_the_table_has_the_range_of_dense_seeds_and_the_gap_of_a_method() -> None:
    _, _, dense, method = horizon_block([*rows(), long_row("ddp", 0.5)]).splitlines()
    assert dense == "| vgg_small_cifar10 | dense | 2 | 0.615 | 0.6 to 0.63 | - | - |"
    assert method == "| vgg_small_cifar10 | top-k, 1 % | 1 | 0.57 | +5.0% | +100% | +50% |"
    assert horizon_block([]).startswith("*No such rows are committed yet")


@pytest.mark.parametrize("kept", [rows()[:3], rows()[3:], []])
def test_without_a_method_or_dense_training_there_is_no_figure(kept: list[Row], tmp_path: Path) -> None:
    assert FIGURE.finding(FIGURE.select(kept)) == "no method was run beside dense training"
    assert FIGURE.draw(FIGURE.select(kept), tmp_path) == []


def test_of_perplexity_less_is_better() -> None:
    def words(scheme: str, values: tuple[float, ...], **case: Any) -> Row:
        curve: dict[str, list[float | None]] = {"step": [*map(float, STEPS)], "perplexity": [*values]}
        given = {"experiment": "horizon", "target_metric": "perplexity", "target_value": 90.0, **case}
        return long_row(scheme, values[-1], model="lstm_wikitext2_small", steps=10000, curve=curve, **given)

    slow = words("powersgd", (200, 150, 120, 110, 104, 102), compressor="powersgd", memory="residual")
    said = FIGURE.finding(FIGURE.select([words("ddp", (150, 120, 110, 105, 100, 100)), slow]))
    assert said == "lstm_wikitext2_small (one dense seed): rank 4 +2.0%, +100% and +50% steps"


def test_a_longer_training_is_a_task_of_its_own() -> None:
    longer = [run("ddp", DENSE, steps=30000), run("per_tensor", DENSE, steps=30000, **TOPK)]
    said = FIGURE.finding(FIGURE.select([*rows(), *longer]))
    assert "vgg_small_cifar10 (dense seeds within 5.0%): top-k, 1 % +5.0%" in said
    assert "vgg_small_cifar10, 30,000 steps (one dense seed): top-k, 1 % +0.0%" in said
