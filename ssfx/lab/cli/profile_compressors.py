"""`ssfx profile compressors`: what compressors, and the runtime itself, take on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ssfx.cli.completion import overrides_argument
from ssfx.cli.terminal import print_table
from ssfx.core.errors import unknown
from ssfx.lab.cli.profile_network import check_kept, keep
from ssfx.planning.costs import times_of

if TYPE_CHECKING:
    from ssfx.perf_model.timing_model import TimingModel


@click.command(short_help="What compressors take on this machine's CPU, for so many ranks at once.")
@overrides_argument
@click.option("--on", metavar="DEVICE", help="Do not measure: nominal times on this device (a100, ...).")
def compressors(overrides: tuple[str, ...], on: str | None) -> None:
    """Measure what compressors and the runtime take on this machine's CPU when so many ranks share it.

    It serves local and emulated clusters of as many ranks. Key: ranks. For example: ssfx profile compressors ranks=4

    With --on nothing is measured or written: what simulations charge for compressors, all or those named, on a device
    that need not be here is printed. One of your own has a cost(), or its operators are counted. For example:

    ssfx profile compressors --plugin mine.py mixk --on a100
    """
    if on is not None:
        _show_nominal(overrides, on)
        return
    from ssfx.lab.config.calibrations import resolve_compressors

    ranks = resolve_compressors(overrides)

    from ssfx.lab.calibration.calibrate_cluster import calibrate_compressors

    check_kept()
    found = calibrate_compressors(ranks)
    _show(found.system)
    keep(found)


def _show_nominal(names: tuple[str, ...], on: str) -> None:
    """Print what compressors take by the data sheet of a device, and how that was obtained."""
    from ssfx.compressors import compressors as registered
    from ssfx.perf_model.compressor_times import nominal_codecs, why_uncounted
    from ssfx.perf_model.devices import device

    target = device(on)
    times = nominal_codecs(target, device("cpu"), 1)
    for name in names:
        if name not in registered.names():
            raise unknown("compressor", name, registered.names())
        times_of(name, times, target.name, why_uncounted(name))
    shown = names or tuple(name for name in times if "(" not in name)
    click.secho(f"nominal on {target.title}: milliseconds by elements (low-rank: times rank)", bold=True)
    sizes = (2**10, 2**14, 2**18, 2**22)
    lines = [
        (name, *(f"{1e3 * times[name].encode(size):.3g}" for size in sizes),
         f"{1e9 * times[name].decode(2**18) / 2**18:.3g}")
        for name in shown
    ]  # fmt: skip
    heads = (*(f"{size:,}" for size in sizes), "ns an entry")
    print_table(("compressor", *heads), lines, right=set(heads))
    for note in dict.fromkeys(times[name].origin.note for name in shown):
        click.echo(f"nominal: {note}")


def _show(system: TimingModel) -> None:
    click.secho(f"{system.world_size} ranks at once: milliseconds by elements (low-rank: times rank)", bold=True)
    sizes = (2**10, 2**14, 2**18, 2**22)
    lines = [
        (name, *(f"{1e3 * codec.encode(size):.3g}" for size in sizes), f"{1e6 * codec.segment_s:.3g}",
         f"{1e6 * codec.piece_s:.3g}", f"{1e6 * codec.tensor_s:.3g}", f"{1e9 * codec.decode(2**18) / 2**18:.3g}")
        for name, codec in system.codecs.items()
    ]  # fmt: skip
    heads = (*(f"{size:,}" for size in sizes), "us a segment", "us a matrix", "us a tensor", "ns an entry")
    print_table(("compressor", *heads), lines, right=set(heads))
    cost = system.overheads
    click.echo(
        f"the runtime: {1e6 * cost.hook_s:.3g} us a gradient, {1e6 * cost.lane_s:.3g} us a message, "
        f"{1e6 * cost.offload_s:.3g} us a segment for the host, {1e6 * cost.finish_s:.3g} us a step, "
        f"{1e9 * cost.fill_s_per_byte:.3g} ns a dense byte, "
        f"{1e6 * cost.result_s:.3g} us a tensor and {1e9 * cost.result_s_per_byte:.3g} ns a byte received, "
        f"{1e6 * cost.decode_s:.3g} us to begin decoding and {1e6 * cost.sum_s:.3g} us a tensor of gathered pairs"
    )
