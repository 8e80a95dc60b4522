"""`ssfx show RUN|SCHEME...`: two or more schemes or runs beside each other, with intervals."""

from collections.abc import Sequence
from dataclasses import replace

import click

from ssfx.cli.terminal import say
from ssfx.core.errors import ConfigError, near, some_of, unknown
from ssfx.core.paths import results_dir
from ssfx.core.rows import Row
from ssfx.core.spec import name_of
from ssfx.lab.cli.outcome import print_panel
from ssfx.lab.results.comparisons import Panel, panels
from ssfx.lab.results.speedup import speedup
from ssfx.lab.results.store import Store
from ssfx.schemes import schemes

_KEYS = ("experiment", "model", "dataset", "cluster", "world_size", "batch_size", "density", "precision")
"""Fields of a case that a KEY=VALUE may narrow the settings by."""
_TABLES = 3
"""Tables that fit on a screen."""


def show_beside(words: Sequence[str], wide: bool) -> None:
    """Print a table for each setting that the named runs and schemes have in common, with dense DDP.

    Of two names a sentence says how much faster the first is. ConfigError for a name or KEY=VALUE without a run.
    """
    names = [word for word in words if "=" not in word]
    if not names:
        raise ConfigError("name a scheme or a run to compare: ssfx show ssfusion_oi model=bert_large")
    store = Store(results_dir())
    rows = _narrowed([*store.rows(), *store.reference_rows()], [word for word in words if "=" in word])
    named = {name: _of(name, rows) for name in names}
    wanted = {row.run_id for each in named.values() for row in each}
    own = {row.run_id for row in store.rows()}
    settings = sorted(
        (panel for panel in panels(rows) if wanted & _runs(panel)),
        key=lambda panel: (not own & _runs(panel), len(panel.case.cluster.options)),
    )
    together = [
        panel for panel in settings if all({row.run_id for row in each} & _runs(panel) for each in named.values())
    ]
    shown = (together or settings)[:_TABLES]
    for panel in shown:
        click.echo()
        click.echo("from your runs:" if own & _runs(panel) else "came with ssfx:")
        kept = {
            label: runs
            for label, runs in panel.bars.items()
            if runs is panel.dense or wanted & {row.run_id for row in runs}
        }
        print_panel(replace(panel, bars=kept), wide)
        if len(names) == 2 and panel in together:
            _say_ratio(panel, *named.items())
    if not together and len(names) > 1:
        say(f"{some_of(names)} have no setting in common; each is beside dense DDP", "  ", "", fg="yellow")
    if more := len(together or settings) - len(shown):
        models = sorted({panel.case.model for panel in together or settings})
        say(f"{more} more settings: narrow them with model=, cluster= or experiment= (models: {some_of(models)})")


def _narrowed(rows: Sequence[Row], filters: Sequence[str]) -> list[Row]:
    kept = list(rows)
    for word in filters:
        key, _, value = word.partition("=")
        if key not in _KEYS:
            raise unknown("key", key, _KEYS)
        there = {str(getattr(row.case, key)) for row in kept}
        kept = [
            row
            for row in kept
            if value in (text := str(getattr(row.case, key)), name_of(text))  # a cluster without its options
        ]
        if not kept:
            raise ConfigError(f"no finished run has {word}; there are {some_of(sorted(there)) or 'none at all'}")
    return kept


def _of(name: str, rows: Sequence[Row]) -> list[Row]:
    found = [row for row in rows if row.case.scheme == name or (len(name) >= 4 and row.run_id.startswith(name))]
    if not found:
        if name in schemes:
            raise ConfigError(f"{name} is a scheme, but no such run has it; ssfx run scheme={name} runs it")
        ran = {row.case.scheme for row in rows}
        close = near(name, ran)
        hint = f"did you mean {' or '.join(close)}?" if close else f"these schemes ran: {', '.join(sorted(ran))}"
        raise ConfigError(f"{name} is neither a scheme nor the beginning of a run's id; {hint}")
    return found


def _runs(panel: Panel) -> set[str]:
    return {row.run_id for runs in panel.bars.values() for row in runs}


def _say_ratio(panel: Panel, first: tuple[str, Sequence[Row]], second: tuple[str, Sequence[Row]]) -> None:
    """Say how much faster the first is: a scheme as it is by default, or the only bar with runs of that name."""
    bars = []
    for name, rows in (first, second):
        ids = {row.run_id for row in rows}
        there = [runs for runs in panel.bars.values() if ids & {row.run_id for row in runs}]
        bars.append(panel.bars.get(name) or (there[0] if len(there) == 1 else None))
    ours, theirs = bars
    if ours and theirs:
        found = speedup(theirs, ours)
        doubt = "" if found.clear else ", which is within noise"
        say(f"{first[0]} trains at {found} the speed of {second[0]}{doubt}", "  ", "", bold=True)
