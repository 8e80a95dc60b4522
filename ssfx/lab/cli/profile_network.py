"""`ssfx profile network`: what exchanges take on a cluster that is here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ssfx.cli.completion import overrides_argument
from ssfx.cli.terminal import print_table
from ssfx.core.files import check_writable, write_json
from ssfx.lab.calibration.calibrate_cluster import calibrate_network
from ssfx.lab.config.calibrations import resolve_network
from ssfx.perf_model.recorded_times import COMPRESSORS, file_name, points_name, written_dir

if TYPE_CHECKING:
    from ssfx.lab.calibration.calibrate_cluster import Calibrated

BUSY_CORES = 0.3
"""From here on others disturb what is measured."""


@click.command(short_help="What exchanges take on this machine, or between emulated hosts on it.")
@overrides_argument
def network(overrides: tuple[str, ...]) -> None:
    """Measure what exchanges take on this machine, or between emulated hosts on it.

    Keys: cluster (local or an emulated one) and world_size. For example: ssfx profile network cluster=emulated_2x1gbit
    """
    cluster, ranks = resolve_network(overrides)

    check_kept()
    found = calibrate_network(cluster, ranks)
    _show(found)
    keep(found)
    if not (written_dir() / file_name(COMPRESSORS, ranks)).exists():
        click.echo(f"compressors are not measured for {ranks} ranks; do it with ssfx profile compressors ranks={ranks}")


def check_kept() -> None:
    """Raise ConfigError where what is measured could not be written: measuring takes minutes."""
    check_writable(written_dir(), "set SSFX_RESULTS to a folder of yours")


def keep(found: Calibrated) -> None:
    """Write the TimingModel and the points it was made from, and say so."""
    folder, system = written_dir(), found.system
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / points_name(system.name, system.world_size), found.points_json())
    path = folder / file_name(system.name, system.world_size)
    write_json(path, system.to_json())
    click.echo(f"{system.origin.kind} on {system.origin.hardware}, {system.origin.date}: {system.origin.note}")
    if found.others > BUSY_CORES:
        click.secho("other processes were busy during it: repeat it on an idle machine", fg="yellow")
    click.echo(str(path))


def _show(found: Calibrated) -> None:
    system = found.system
    click.secho(f"{system.name}, {system.world_size} ranks: milliseconds by bytes that one rank contributes", bold=True)
    sizes = (4, 2**10, 2**16, 2**20, 2**24, 2**28)
    lines = [
        (name, *(f"{1e3 * curve(size):.3g}" if curve.covers(size) else "-" for size in sizes), f"{busy:.0%}")
        for (name, curve), busy in ((one, system.contention.occupancy[one[0]]) for one in system.exchange.items())
    ]
    heads = ("4 B", "1 KiB", "64 KiB", "1 MiB", "16 MiB", "256 MiB")
    print_table(("exchange", *heads, "computing"), lines, right={*heads, "computing"})
