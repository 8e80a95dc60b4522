"""Every verdict that counts as tested could have come out otherwise: none is written down, and rows move all others."""

import ast
import random
from collections import defaultdict
from dataclasses import replace
from functools import partial
from math import exp
from pathlib import Path
from typing import Any

import pytest

import experiments.common.evaluation
from experiments.common.claims.verdicts import JUDGED
from experiments.common.evaluation import gpu_times
from experiments.common.figures.discovery import discover, experiments_dir
from experiments.common.figures.every_claim import verdicts
from experiments.common.pages.readme import reference_rows
from ssfx.core.rows import Row
from ssfx.perf_model.measured_gpus import MeasuredGpu, Points, measured_gpu

SPREADS = 8 * (1.5, 3.0, 6.0)
"""Of each draw, the standard deviation of the logarithm of what every number is multiplied with."""
LOW = 1e-2
"""What a zero is taken for, which no factor could move."""


def shaken(row: Row, draw: int) -> Row:
    """Return the row with every number times a factor of its own, which runs that differ by seed alone share."""
    random_ = random.Random(f"{draw} {replace(row.case, seed=0, repeat=0)}")

    def number(value: Any, factor: float) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        return (value or LOW) * factor

    def factor() -> float:
        return exp(random_.gauss(0, SPREADS[draw]))

    return replace(
        row,
        metrics={name: number(value, factor()) for name, value in row.metrics.items()},
        samples={
            name: [number(one, scale) for one in values] for name, values in row.samples.items() for scale in [factor()]
        },
        curve={
            name: values if name == "step" else [number(one, factor()) for one in values]
            for name, values in (row.curve or {}).items()
        },
    )


def shaken_gpu(sheet: str, draw: int) -> MeasuredGpu:
    """Return the record of a GPU with every time of its compressors times a factor of its own."""
    random_, gpu = random.Random(f"{draw} {sheet}"), measured_gpu(sheet)

    def points(given: Points) -> Points:
        return tuple((size, seconds * exp(random_.gauss(0, SPREADS[draw]))) for size, seconds in given)

    codecs = {
        name: replace(one, encode=points(one.encode), decode=points(one.decode)) for name, one in gpu.codecs.items()
    }
    return replace(gpu, codecs=codecs)


def literal_outcomes(path: Path) -> list[str]:
    """Return the claims of a script whose outcome is written down, but for those that say that they restate."""
    found = []
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or len(call.args) < 2:
            continue
        written = [one.value for one in ast.walk(call) if isinstance(one, ast.Constant)]
        literal = isinstance(call.args[1], ast.Constant) and call.args[1].value in (*JUDGED, True)
        if call.func.id in ("says", "Verdict") and literal and "restated" not in written:
            found.append(f"{path.name}: {ast.unparse(call.args[0])}")
    return found


def test_no_script_writes_an_outcome_down():
    folders = (experiments_dir(), Path(experiments.common.evaluation.__file__).parent)
    scripts = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    assert len(scripts) > 30
    assert [one for path in scripts for one in literal_outcomes(path)] == []


@pytest.mark.pages
def test_rows_can_move_every_value_and_refute_every_agreement(monkeypatch):
    figures = [one for one in discover().values() if one.needs]
    rows = reference_rows()
    first = {(one.claim, one.source, one.calibration): one for one in verdicts(figures, rows)}
    outcomes, values = defaultdict(set), defaultdict(set)
    for draw in range(len(SPREADS)):
        monkeypatch.setattr(gpu_times, "measured_gpu", partial(shaken_gpu, draw=draw))
        for one in verdicts(figures, [shaken(row, draw) for row in rows]):
            outcomes[one.claim, one.source, one.calibration].add(one.outcome)
            values[one.claim, one.source, one.calibration].add(one.ours)
    from_rows = ("measured", "emulated", "simulated")
    tested = {key: one for key, one in first.items() if one.outcome in JUDGED and one.source in from_rows}
    assert len(tested) > 240
    nowhere = "in 0 of"  # an order of many times rarely holds by chance
    still = [key for key, one in tested.items() if values[key] <= {one.ours} and not one.ours.startswith(nowhere)]
    assert still == []
    assert [key for key, one in tested.items() if one.outcome == "agrees" and outcomes[key] <= {"agrees"}] == []
