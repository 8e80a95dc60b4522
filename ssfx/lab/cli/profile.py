"""`ssfx profile`: what this machine takes, measured into files that plans and simulations rest on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ssfx.cli.completion import overrides_argument
from ssfx.core.errors import ConfigError, nearest, unknown
from ssfx.lab.cli.profile_compressors import compressors
from ssfx.lab.cli.profile_network import network
from ssfx.lab.cli.profile_own import function, show_profile, trace

if TYPE_CHECKING:
    from ssfx.planning.profile import Profile


class _ModelByDefault(click.Group):
    """Takes FILE.py:FUNCTION as `ssfx profile function`, trace=FILE as `trace`, and other words as `model`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        if first not in (*self.commands, "-h", "--help"):
            named = next((i for i, word in enumerate(args) if word.startswith("model=")), None)
            counted = any(word.partition("=")[0] == "--on" for word in args)
            if counted and named is not None:
                name = args[named].removeprefix("model=")
                return super().parse_args(ctx, ["function", name, *args[:named], *args[named + 1 :]])
            bare = "=" not in first.partition(":")[0] and not first.startswith("-")
            if bare and (":" in first or first.endswith(".py") or counted):
                return super().parse_args(ctx, ["function", *args])
            if any(word.startswith("trace=") for word in args):
                return super().parse_args(ctx, ["trace", *args])
            if "=" not in first and not first.startswith("-") and nearest(first, self.commands):
                raise unknown("thing to profile", first, self.commands)
            args = ["model", *([f"model={first}", *args[1:]] if bare and first else args)]
        return super().parse_args(ctx, args)


@click.group(cls=_ModelByDefault, short_help="Measure a model on this machine, as input of simulations.")
def profile() -> None:
    """Measure what this machine takes and write it to a file.

    Your own model: ssfx profile mytrain.py:build_model, where build_model() returns (model, batch); or from a trace of
    torch.profiler: ssfx profile trace=trace.json.gz. One that ssfx has: ssfx profile model=resnet_tiny ranks=2

    With --on DEVICE either is counted for a device that need not be here: ssfx profile gpt2_large --on h100
    """


profile.add_command(network)
profile.add_command(compressors)
profile.add_command(function)
profile.add_command(trace)


@profile.command(short_help="When each gradient of a model is ready; forward, backward and step.")
@overrides_argument
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write; default: below results/.")
@click.option("--if-faster", is_flag=True, help="Keep a file that is there if this machine was faster then.")
def model(overrides: tuple[str, ...], out: Path | None, if_faster: bool) -> None:
    """Measure when each gradient of a model is ready, and forward, backward and step.

    Keys: model, workload, dataset, batch_size, optimizer, device, and ranks, the number of processes that compute on
    this machine at the same time. For example: ssfx profile model=gpt2_tiny batch_size=4 ranks=2

    A neighbour on the same physical cores makes a machine slower for seconds or minutes. Measure again, some time
    later, with --if-faster, and what is kept is the faster one.
    """
    from ssfx.core.files import check_writable, write_json
    from ssfx.lab.config.profiles import resolve_profile
    from ssfx.perf_model.recorded_times import profile_name, written_dir

    asked = resolve_profile(overrides)
    if "(" in asked.dataset and not asked.dataset.startswith("synthetic(") and out is None:
        raise ConfigError(
            f"dataset={asked.dataset} has options, and simulations would take its times for those of the data set as "
            "it comes; name a file with --out, or drop them"
        )

    check_writable(out.parent if out else written_dir(), "name a file with --out, or set SSFX_RESULTS")

    from ssfx.lab.workloads.profiling import record_profile

    found = record_profile(
        asked.model, asked.dataset, asked.batch_size, asked.device, ranks=asked.ranks, optimizer=asked.optimizer
    )
    path = out or written_dir() / profile_name(found)
    if if_faster and (before := _faster(path, found)):
        show_profile(before)
        click.echo(f"{path}, kept: {100 * (found.alone_s() / before.alone_s() - 1):.0f} % faster than now")
        return
    write_json(path, found.to_json())
    show_profile(found)
    click.echo(str(path))


def _faster(path: Path, found: Profile) -> Profile | None:
    """Return the profile at `path` if the same machine measured it and was faster then."""
    from ssfx.perf_model.recorded_times import read
    from ssfx.planning.profile import Profile

    before = read(path, Profile.from_json) if path.exists() else None
    same = before is not None and before.origin.hardware == found.origin.hardware
    return before if before and same and before.alone_s() <= found.alone_s() else None
