"""The quality of rounds as ssfx/data/rounds_quality.json, which `ssfx advise` reads.

`python -m ssfx.lab.calibration.rounds_quality` writes it from the rows of experiment=local_updates in
results/reference.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from math import exp
from typing import Any

from ssfx.advice.rounds import FILE, RoundsRecord
from ssfx.core.files import write_json
from ssfx.core.paths import data_dir, reference_dir
from ssfx.core.rows import Row
from ssfx.core.spec import Spec
from ssfx.lab.calibration.long_runs import LogSteps, log_steps
from ssfx.lab.results.store import read_rows
from ssfx.lab.workloads.metrics.tally import QUALITY, better
from ssfx.perf_model.operator_counts import model_work
from ssfx.schemes import schemes
from ssfx.schemes.search.recorded_network import family_of

SOURCE = "local_updates_local.jsonl"


def with_twins(rows: Iterable[Row]) -> list[tuple[Row, Row]]:
    """Return each run of a method beside that of scheme=ddp on the same data, ranks, batch, steps and seed."""
    rows = [row for row in rows if row.case.experiment == "local_updates"]
    dense = {_place(row): row for row in rows if row.case.scheme == "ddp"}
    return [(row, dense[at]) for row in rows if (at := _place(row)) in dense and row.case.scheme != "ddp"]


def records(rows: Iterable[Row]) -> list[RoundsRecord]:
    """Return a record for each way of rounds with a dense run beside it."""
    found: defaultdict[tuple[Any, ...], list[tuple[float, LogSteps]]] = defaultdict(list)
    for row, twin in with_twins(rows):
        case = row.case
        if (rounds := schemes[case.scheme].online(dict(case.plan_options)).rounds) is None:
            continue
        size = rounds.ranks_per_group
        work = model_work(case.model)
        batch = size * case.batch_size * case.accumulate * work.sample_tokens
        trained = (case.trained_ranks // size, batch, family_of(work.tensors), case.optimizer, case.model)
        if (more := _more_percent(row, twin)) is not None and (steps := log_steps(twin, row)) is not None:
            found[(*method_of(row), *trained)].append((more, steps))
    return [_record(key, runs) for key, runs in sorted(found.items())]


def method_of(row: Row) -> tuple[str, str, int]:
    """Return the scheme of a run, its options as a text, "" for none, and every how many steps it exchanges."""
    case = row.case
    rounds = schemes[case.scheme].online(dict(case.plan_options)).rounds
    options = {key: value for key, value in case.scheme_options.items() if key != "every"}
    return case.scheme, str(Spec(case.scheme, options)) if options else "", rounds.every if rounds is not None else 1


def _record(key: tuple[Any, ...], runs: list[tuple[float, LogSteps]]) -> RoundsRecord:
    more = tuple(one for one, _ in runs)
    times = tuple(round(exp(steps.value), 3) for _, steps in runs)
    return RoundsRecord(*key, more, times, any(steps.at_least for _, steps in runs))  # type: ignore[call-arg]


def _place(row: Row) -> tuple[Any, ...]:
    case = row.case
    batch = (case.trained_ranks, case.batch_size, case.accumulate, case.steps)
    return (case.model, case.dataset, case.optimizer, case.lr, case.seed, *batch)


def _more_percent(row: Row, twin: Row) -> float | None:
    """Return by how many percent what is bad, perplexity or the share of errors, is above that of the twin."""
    for name in QUALITY:
        mine, its = row.metrics.get(name), twin.metrics.get(name)
        if mine is not None and its is not None:
            mine, its = (1 - mine, 1 - its) if better(name, 1.0, 0.0) else (mine, its)
            return round(100 * (mine / its - 1), 2) if its > 0 else None
    return None


if __name__ == "__main__":
    found = records(read_rows(reference_dir() / SOURCE))
    write_json(data_dir() / FILE, json.dumps([asdict(one) for one in found], indent=1))
