"""`ssfx cluster`: a cluster file of what people have of a cluster; what a cluster is; whether a file is whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ssfx.cli.terminal import print_table, say
from ssfx.config.groups import check_choice
from ssfx.core.case import ClusterChoice
from ssfx.core.errors import ConfigError, unknown
from ssfx.core.files import write_atomic
from ssfx.lab.calibration.cluster_import import imported
from ssfx.perf_model.cluster_file import cluster_on
from ssfx.perf_model.exchange_tables import held_out, sized

if TYPE_CHECKING:
    from ssfx.perf_model.cluster import Cluster

_SIZES = (2**12, 2**16, 2**20, 2**23, 2**25, 2**28)
_HEADS = ("4 KiB", "64 KiB", "1 MiB", "8 MiB", "32 MiB", "256 MiB")


class _Verbs(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise unknown("command of ssfx cluster", args[0], self.commands, {"list": "ssfx list clusters"})
        return super().parse_args(ctx, args)


@click.group(cls=_Verbs)
def cluster() -> None:
    """Make a cluster file of what is known of a cluster, show one, or check one.

    For example: ssfx cluster import all_reduce.log && ssfx advise model=resnet50 cluster=all_reduce.yaml
    """


@cluster.command("import", short_help="Make a cluster file of logs of nccl-tests and the like.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--name", help="Name of the file that is written, without .yaml; default: as the first FILE.")
@click.option("--nodes", type=click.IntRange(1, 10**5), help="Machines, where a log does not list its devices.")
@click.option("--device", default="", help="Data sheet of the devices, where none fits their name.")
@click.option("--overwrite", "again", is_flag=True, help="Replace a file of that name.")
def import_(files: tuple[Path, ...], name: str | None, nodes: int | None, device: str, again: bool) -> None:
    """Make a cluster file of FILEs: text of nccl-tests or rccl-tests, of any of all_reduce, all_gather, reduce_scatter,
    alltoall and sendrecv on any numbers of ranks; ssfx profile network.
    """
    stem = name or files[0].name.partition(".")[0] or "cluster"
    if Path(stem).name != stem or stem.startswith("."):
        raise ConfigError(f"--name {stem} must be the name of a file, without its folder")
    path = Path(f"{stem}.yaml")
    if path in files:
        raise ConfigError(f"{path} would be written over itself; choose another --name")
    found = imported(files, nodes=nodes, device=device)
    if path.exists() and not again and path.read_text(encoding="utf-8", errors="replace") != found.text:
        raise ConfigError(f"{path} is here already and says something else; choose another --name, or add --overwrite")
    write_atomic(path, found.text)
    try:
        _print(_cluster(str(path)))
    except ConfigError:
        path.unlink()
        raise
    for note in found.notes:
        say(f"beware: {note}", "  ", "", fg="yellow")
    say(f"{path}\nNext: ssfx advise model=resnet50 cluster={path}, or profile=FILE for a model of your own", "  ", "")


@cluster.command(short_help="Show devices, links, tables of exchanges and their times.")
@click.argument("name", metavar="NAME|FILE")
def show(name: str) -> None:
    """Show what NAME of ssfx list clusters, or FILE.yaml, is: devices, links, tables, and what exchanges take."""
    _print(_cluster(name))


@cluster.command(short_help="Check a cluster file: it can be read, and its tables hold together.")
@click.argument("file", metavar="FILE")
def check(file: str) -> None:
    """Check that FILE can be planned on, and say what in its tables is odd, and how well they predict themselves."""
    found = _cluster(file)
    for table in found.tables:
        off = sorted(abs(error) for _, error in held_out(table))
        said = (
            f"; every second size held out: median {off[len(off) // 2]:.1%}, at most {off[-1]:.1%} off" if off else ""
        )
        click.echo(f"{table.collective}: {table.text}{said}")
        if table.dips:
            sizes = ", ".join(map(sized, table.dips))
            say(
                f"not monotone: {sizes} takes less than a smaller message; it is kept as it is", "  ", "  ", fg="yellow"
            )
    click.echo(f"{file} can be planned on: {found.world_size} ranks, {found.exchange_text}")


def _cluster(name: str) -> Cluster:
    found = cluster_on(ClusterChoice(check_choice("cluster", name)), None, "auto")
    found.exchange()
    return found


def _print(found: Cluster) -> None:
    from ssfx.perf_model.devices import device, has_sheet

    title = device(found.device).title if has_sheet(found.device) else found.device
    say(f"{found.name}: {found.nodes} nodes of {found.devices_per_node} {found.device} ({title})", "  ", "", bold=True)
    for where, link in (("inside a node", found.intra), ("between nodes", found.inter)):
        if found.nodes > 1 or where == "inside a node":
            kind = f"{link.kind}, " if link.kind else ""
            rate = f"{link.gbps:g} Gbit/s at {link.efficiency:.0%}, {1e6 * link.latency_s:.3g} us a message"
            click.echo(f"{where}: {kind}{rate}")
    if found.tables:
        rows = [
            (
                one.collective,
                str(one.ranks),
                str(one.ranks_per_node),
                one.sizes_text,
                f"{one.busbw_gbps:.4g}",
                one.library or "-",
                "no" if one.dips else "yes",
            )
            for one in sorted(found.tables, key=lambda one: (one.collective, one.ranks))
        ]
        header = ("table", "ranks", "a node", "sizes", "Gbit/s", "library", "monotone")
        print_table(header, rows, right={"ranks", "a node", "Gbit/s"})
    curves, here = found.exchange(), found.tabled
    shown = [name for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send") if name in curves]
    times: list[tuple[str, ...]] = []
    for name in shown:
        from_ = "measured" if name in here.measured else "from a table" if name in here.derived else "formula"
        curve = curves[name]
        times.append((name, *(f"{1e3 * curve(size):.3g}" if curve.covers(size) else "-" for size in _SIZES), from_))
    print_table(("ms by bytes a rank hands over", *_HEADS, ""), times, right=set(_HEADS))
    say(f"exchanges: {found.exchange_text}", "  ", "")
    say(f"source: {found.source}", "  ", "")
