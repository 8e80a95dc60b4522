"""How many more steps than dense training: from made curves, with ranges over seeds, and in what users read."""

from dataclasses import replace
from typing import Any

import pytest
from figures.synthetic import row

from ssfx.core.rows import Row
from ssfx.lab.calibration.long_runs import multiples
from ssfx.lab.cli.outcome import plain_outcome, print_outcome
from ssfx.lab.results.comparisons import panels


def run(scheme: str, slower: float, seed: int = 0, **by: Any) -> Row:
    """Return a run whose accuracy after s steps is that of dense training after s / slower steps."""
    made = row(scheme=scheme, metrics={"iteration_s": 0.5 if scheme == "ddp" else 0.25})
    steps = [float(step) for step in range(10, 101, 10)]
    curve: dict[str, list[float | None]] = {"step": list(steps), "top1": [step / slower / 100 for step in steps]}
    return replace(made, case=(case := replace(made.case, steps=100, seed=seed, **by)), run_id=case.run_id, curve=curve)


@pytest.mark.parametrize(("slower", "said"), [(1.0, "1.00x"), (1.6, "1.60x"), (2.5, ">2.00x")])
def test_a_slower_run_takes_so_many_more_steps_at_the_horizon(slower: float, said: str) -> None:
    (panel,) = panels([run("ddp", 1.0), run("per_tensor", slower)])
    quarter, half, _ = found = multiples(panel, "per_tensor")
    assert [one.dense_steps for one in found] == [25.0, 50.0, 100.0]
    assert quarter.median == pytest.approx(slower)
    assert str(half) == said
    assert half.unreached == (slower > 2)


def test_a_run_is_held_against_dense_training_of_its_own_seed() -> None:
    dense = [run("ddp", 1.0 + seed, seed) for seed in range(3)]
    (panel,) = panels([*dense, *(run("per_tensor", (1.0 + seed) * 1.2, seed) for seed in range(4))])
    found = multiples(panel, "per_tensor")[0]
    assert (found.runs, found.unreached) == (3, 0)
    assert found.low == pytest.approx(1.2)
    assert found.high == pytest.approx(1.2)


def test_without_curves_there_is_no_multiple(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [replace(run("ddp", 1.0), curve={}), run("per_tensor", 1.6)]
    (panel,) = panels(rows)
    assert multiples(panel, "per_tensor") == []
    print_outcome(rows)
    assert "over its own" not in capsys.readouterr().out


def test_the_outcome_says_steps_and_time_to_the_quality(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [run("ddp", 1.0), run("per_tensor", 1.6)]
    print_outcome(rows)
    assert "after 50" in (out := capsys.readouterr().out)
    assert "1.60x" in out
    ((_, other),) = [one["schemes"] for one in plain_outcome(rows)]
    assert other["steps_over_dense"][0]["median"] == pytest.approx(1.6)
