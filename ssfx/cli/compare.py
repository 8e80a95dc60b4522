"""`ssfx compare`: two or more schemes or runs beside each other, with intervals."""

from __future__ import annotations

import click

from ssfx.core.errors import ConfigError


@click.command(short_help="Put runs or schemes side by side.")
@click.argument("names", nargs=-1, required=True, metavar="RUN|SCHEME...")
@click.option("--experiment", help="Only rows of this experiment.")
@click.option("--wide", is_flag=True, help="Do not fit the table to the terminal.")
def compare(names: tuple[str, ...], experiment: str | None, wide: bool) -> None:
    """Compare finished runs (by run id or the beginning of it) or schemes, each against dense DDP where that was run.

    For example: ssfx compare ddp ssfusion_oi --experiment throughput
    """
    from ssfx.cli.outcome import print_outcome
    from ssfx.cli.show import finished
    from ssfx.schemes import schemes

    rows = finished(experiment)
    chosen = []
    for name in names:
        found = [row for row in rows if row.case.scheme == name or (len(name) >= 4 and row.run_id.startswith(name))]
        if not found:
            known = "a scheme, but no finished run has it" if name in schemes else "neither a scheme nor a finished run"
            raise ConfigError(f"{name} is {known}; ssfx status lists what has run, ssfx run scheme={name} runs it")
        chosen += found
    cases = {(row.case.experiment, row.case.cluster, row.case.model, row.case.world_size) for row in chosen}
    dense = [
        row for row in rows
        if row.case.scheme == "ddp"
        and (row.case.experiment, row.case.cluster, row.case.model, row.case.world_size) in cases
    ]  # fmt: skip
    print_outcome([*{row.run_id + row.origin.date: row for row in [*chosen, *dense]}.values()], wide)
