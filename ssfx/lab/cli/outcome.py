"""What rows say, as tables: schemes side by side with dense DDP, how sure the difference is, and where it is from."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from ssfx.advice.screen import worth
from ssfx.cli.terminal import picked, print_table, say
from ssfx.core.numbers import rounded
from ssfx.core.rows import Row
from ssfx.lab.calibration.long_runs import multiples
from ssfx.lab.results.comparisons import Panel, median_of, panels, sent_mark
from ssfx.lab.results.speedup import speedup

BUSY_CORES = 0.2
"""Cores that other programs kept busy, above which measured times are doubtful."""
QUALITY = {
    "top1": "{:.1%} top-1",
    "exact_match": "exact match {:.1%}",
    "f1": "F1 {:.1%}",
    "perplexity": "perplexity {:.2f}",
    "bleu": "BLEU {:.1f}",
}


def print_outcome(rows: Sequence[Row]) -> None:
    """Print a table for every workload and cluster of `rows`, the fastest scheme first, and what to beware of.

    Where there are several, one of all follows, with what was swept as its rows.
    """
    found = panels(rows)
    for panel in found:
        click.echo()
        print_panel(panel, wide=False)
    if len(found) > 1:
        click.echo()
        _print_sweep(found)


def _print_sweep(found: Sequence[Panel]) -> None:
    """Print the milliseconds of a step by setting and scheme; a row is called by what not all of them share."""
    said = [[panel.workload, f"{panel.world_size} ranks", *panel.conditions.split(", "), panel.how] for panel in found]
    rows = [", ".join(part for part in parts if not all(part in other for other in said)) for parts in said]
    schemes = list(dict.fromkeys(label for panel in found for label in panel.bars))
    lines = [
        (row, *(_number(median_of(panel.bars.get(label, ()), "iteration_s"), ",.1f", 1e3) for label in schemes))
        for row, panel in sorted(zip(rows, found, strict=True), key=lambda pair: _by_number(pair[0]))
    ]
    print_table(("ms a step", *schemes), lines, right=set(schemes))


def _by_number(text: str) -> list[tuple[float, str]]:
    """Return what sorts texts with numbers in them as people do: 1, 10 and 25 after one another."""
    return [
        (float(part), "") if re.match(r"[0-9]", part) else (0.0, part)
        for part in re.split(r"([0-9]+(?:[.][0-9]+)?)", text)
    ]


def plain_outcome(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the same as what JSON can hold: an object for every workload and cluster, in it one for every scheme."""
    return [
        {
            **picked(panel, "workload world_size origin=kind hardware background_cores"),
            "cluster": str(panel.case.cluster),
            "calibration": panel.case.calibration,
            "schemes": [_plain_bar(panel, label, runs) for label, runs in panel.bars.items()],
        }
        for panel in panels(rows)
    ]


def _plain_bar(panel: Panel, label: str, runs: Sequence[Row]) -> dict[str, Any]:
    against = None
    if panel.dense and runs is not panel.dense:
        against = picked(speedup(panel.dense, runs), "ratio low high clear")
    names = ("iteration_s", "iteration_p10_s", "iteration_p90_s", "throughput_samples_per_s", "sent_bytes")
    return {
        "scheme": label,
        "runs": [row.run_id for row in runs],
        **{name: median_of(runs, name) for name in names},
        "against_dense": against,
        "achieved_density": median_of(runs, "achieved_density"),
        "quality": {name: value for name in QUALITY if (value := median_of(runs, name)) is not None},
        "steps_over_dense": [asdict(one) for one in multiples(panel, label)],
        "extrapolated": panel.extrapolated(label),
    }


def print_panel(panel: Panel, wide: bool) -> None:
    """Print the table of one setting, the fastest scheme first, and what to beware of."""
    where = f"{panel.workload}, {panel.world_size} ranks, {panel.conditions}"
    say(f"{where}: {panel.how}" + ("" if panel.case.calibration else f" on {panel.hardware}"), "  ", "", bold=True)
    dense = panel.dense
    doubtful = []
    lines: list[tuple[str, ...]] = []
    for label, runs in sorted(panel.bars.items(), key=lambda item: median_of(item[1], "iteration_s") or 0.0):
        against = ""
        if dense and runs is not dense:
            found = speedup(dense, runs)
            against = str(found)
            if not found.clear:
                doubtful.append(label)
        lines.append(
            (
                f"{label}{f' (sent {sent})' if (sent := sent_mark(runs, dense)) else ''}",
                _ms(runs),
                _number(median_of(runs, "throughput_samples_per_s"), ",.1f"),
                against or ("1.00x" if runs is dense else "-"),
                _number(median_of(runs, "sent_bytes"), ",.2f", 1e-6),
                _quality(runs),
            )
        )
    header: tuple[str, ...] = ("scheme", "iteration ms", "samples/s", "against dense", "MB sent", "quality")
    if not any(line[-1] for line in lines):
        header, lines = header[:-1], [line[:-1] for line in lines]
    print_table(header, lines, right=set(header) - {"scheme", "quality"}, wide=wide)
    if worth_of := _worth(panel):
        say(worth_of, "  ", "")
    if doubtful:
        say(f"within noise of dense: {', '.join(doubtful)}; more steps or repeats would tell", "  ", "")
    if any("(" in line[3] for line in lines):  # no simulated time has an interval
        say(
            "ranges: of iteration ms, the 10th to 90th percentile of a run's steps; of against dense, the 95 % "
            "interval of dense's median step over the scheme's, by bootstrap over runs and their steps",
            "  ",
            "",
        )
    if panel.background_cores > BUSY_CORES:
        say(
            f"the machine was busy: other programs used up to {panel.background_cores:.1f} cores during these runs, so "
            "times are longer than they should be and not to be compared",
            "  ",
            "",
            fg="yellow",
        )
    if panel.case.calibration and any(map(panel.extrapolated, panel.bars)):
        say("some of these times rest on costs beyond the range that they are known for", "  ", "", fg="yellow")
    _print_multiples(panel, wide)


def _worth(panel: Panel) -> str:
    """Return how many devices' work all of them do with dense and with the fastest scheme, by simulated steps of one
    pass; "" where no row knows what one device alone takes.
    """
    rows = [row for runs in panel.bars.values() for row in runs]
    if any("alone_s" not in row.manifest or row.case.accumulate > 1 for row in rows):
        return ""
    works = {
        label: row.case.world_size * row.manifest["alone_s"] / row.metrics["iteration_s"]
        for label, (row, *_) in panel.bars.items()
    }
    best, dense = max(works, key=lambda label: works[label]), panel.dense
    said = f"{worth(panel.world_size, panel.case.device, works[best])} with {best}"
    known = next((label for label, runs in panel.bars.items() if runs is dense), best)
    return said if known == best else f"{said}, of {rounded(works[known], 2)} with {known}"


def _print_multiples(panel: Panel, wide: bool) -> None:
    """Print how many more steps each scheme needed than dense training, where runs have curves of their quality."""
    found = {
        label: many
        for label, runs in panel.bars.items()
        if runs is not panel.dense and (many := multiples(panel, label))
    }
    if not found:
        return
    horizons = [f"after {one.dense_steps:,.0f}" for one in max(found.values(), key=len)]
    lines = []
    for label, many in found.items():
        longer, shorter = median_of(panel.bars[label], "iteration_s"), median_of(panel.dense, "iteration_s")
        time = f"{many[-1].at_least}{many[-1].median * longer / shorter:.2f}x" if longer and shorter else "-"
        lines.append((label, *["-"] * (len(horizons) - len(many)), *map(str, many), time))
    say(
        "steps to the quality that dense training had, over its own (median and range of seeds; >: not reached), "
        "and the time of the last:",
        "  ",
        "",
    )
    print_table(("scheme", *horizons, "time"), lines, right={*horizons, "time"}, wide=wide)


def _ms(rows: Sequence[Row]) -> str:
    middle = median_of(rows, "iteration_s")
    low, high = median_of(rows, "iteration_p10_s"), median_of(rows, "iteration_p90_s")
    if middle is None:
        return "-"
    spread = f" ({1e3 * low:.1f} to {1e3 * high:.1f})" if low is not None and high is not None else ""
    return f"{1e3 * middle:.1f}{spread}"


def _quality(rows: Sequence[Row]) -> str:
    found = {name: median_of(rows, name) for name in QUALITY}
    return ", ".join(QUALITY[name].format(value) for name, value in found.items() if value is not None)


def _number(value: float | None, form: str, factor: float = 1.0) -> str:
    return "-" if value is None else format(factor * value, form)
