"""`ssfx doctor --gpu`: the first hour on a GPU, in five minutes and one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ssfx.cli.terminal import say
from ssfx.core import machine
from ssfx.core.errors import RunError
from ssfx.core.files import check_writable, write_json

if TYPE_CHECKING:
    from ssfx.perf_model.gpu_record import Part


def check_gpus_here(as_json: bool) -> None:
    """Check and measure the GPUs here and write the record; exit code 1 without a GPU, or where a part failed."""
    if not machine.gpus():
        raise RunError("ssfx doctor --gpu needs a GPU and nvidia-smi shows none here; ssfx doctor says what runs")
    from ssfx.core import accelerator
    from ssfx.lab.calibration.gpu_check import check_gpus, sizes_on_gpu
    from ssfx.perf_model.gpu_record import record_path

    gpus = accelerator.count("cuda")
    if not gpus:
        raise RunError("this PyTorch sees no GPU, though nvidia-smi does; install a build of torch for CUDA")
    path = record_path()
    check_writable(path.parent, "set SSFX_RESULTS to a folder of yours")
    record = check_gpus("cuda", gpus, sizes_on_gpu(), _tell_nothing if as_json else _tell)
    write_json(path, record.to_json())
    if as_json:
        click.echo(record.to_json())
    else:
        say(f"{record.origin.hardware}, {record.origin.date}", "  ", "", bold=True)
        click.echo(str(path))
        say("simulations of cluster=local use it; please attach it to an issue: docs/calibration.md", "  ", "")
    if record.failed:
        click.echo(f"ssfx: failed: {', '.join(record.failed)}", err=True)
        raise click.exceptions.Exit(1)


def _tell(part: Part) -> None:
    say(
        f"{part.name}, {part.seconds:.0f} s: {part.said or 'nothing'}",
        "    ",
        "",
        fg=None if part.problems else "green",
    )
    for problem in part.problems:
        say(f"{part.name} failed: {problem}", "    ", "", fg="red")


def _tell_nothing(part: Part) -> None:
    """All of it is printed at the end."""
