"""`ssfx profile`: what this machine takes, measured into files that plans and simulations rest on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ssfx.cli.completion import overrides_argument
from ssfx.cli.terminal import print_table, say
from ssfx.compressors import compressors as registered
from ssfx.config.groups import check_choice
from ssfx.core.errors import ConfigError, nearest, unknown
from ssfx.core.files import check_writable, write_json
from ssfx.core.user_code import is_own
from ssfx.lab.calibration.calibrate_cluster import calibrate_compressors, calibrate_network
from ssfx.lab.calibration.rank_traces import profile_of_traces
from ssfx.lab.config.profiles import key_values, resolve_compressors, resolve_network, resolve_profile
from ssfx.perf_model.cluster_file import local_device
from ssfx.perf_model.compressor_times import nominal_codecs, why_uncounted
from ssfx.perf_model.devices import device
from ssfx.perf_model.recorded_times import COMPRESSORS, file_name, points_name, profile_name, written_dir
from ssfx.perf_model.roofline import STEP_TRAFFIC, counted_profile
from ssfx.planning.costs import times_of
from ssfx.planning.profile import Profile

if TYPE_CHECKING:
    from ssfx.lab.calibration.calibrate_cluster import Calibrated
    from ssfx.perf_model.timing_model import TimingModel
    from ssfx.planning.plan import TensorSpec


class _ModelByDefault(click.Group):
    """Takes FILE.py:FUNCTION as `ssfx profile function`, trace=FILE as `trace`, and other words as `model`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            raise ConfigError(
                "say what to measure: ssfx profile mytrain.py:build_model [--on a100], model=NAME, trace=FILE, network "
                "or compressors (ssfx profile --help)"
            )
        first = args[0] if args else "--help"
        if first not in (*self.commands, "-h", "--help"):
            named = next((i for i, word in enumerate(args) if word.startswith("model=")), None)
            counted = any(word.partition("=")[0] == "--on" for word in args)
            if counted and named is not None:
                name = args[named].removeprefix("model=")
                return super().parse_args(ctx, ["function", name, *args[:named], *args[named + 1 :]])
            bare = "=" not in first.partition(":")[0] and not first.startswith("-")
            if any(word.startswith("trace=") for word in args):
                return super().parse_args(ctx, ["trace", f"model={first}" if bare else first, *args[1:]])
            if bare and (":" in first or first.endswith(".py") or counted):
                return super().parse_args(ctx, ["function", *args])
            if "=" not in first and not first.startswith("-") and nearest(first, self.commands):
                raise unknown("thing to profile", first, self.commands)
            args = ["model", *([f"model={first}", *args[1:]] if bare and first else args)]
        return super().parse_args(ctx, args)


@click.group(cls=_ModelByDefault)
def profile() -> None:
    """Measure what this machine takes and write it to a file.

    Your own model: ssfx profile mytrain.py:build_model, where build_model() returns (model, batch); or from a trace of
    torch.profiler: ssfx profile trace=trace.json.gz. One that ssfx has: ssfx profile model=resnet_tiny ranks=2

    With --on DEVICE either is counted for a device that need not be here: ssfx profile gpt2_large --on h100
    """


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

    before = read(path, Profile.from_json) if path.exists() else None
    same = before is not None and before.origin.hardware == found.origin.hardware
    return before if before and same and before.alone_s() <= found.alone_s() else None


@profile.command(short_help="What compressors take on this machine's CPU, for so many ranks at once.")
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
        # Print what compressors take by the data sheet of a device, and how that was obtained.
        target = device(on)
        times = nominal_codecs(target, device("cpu"), 1)
        for name in overrides:
            if name not in registered.names():
                raise unknown("compressor", name, registered.names())
            times_of(name, times, target.name, why_uncounted(name))
        shown = overrides or tuple(name for name in times if "(" not in name)
        click.secho(f"nominal on {target.title}: milliseconds by elements (low-rank: times rank)", bold=True)
        sizes = (2**10, 2**14, 2**18, 2**22)
        lines = [
            (
                name,
                *(f"{1e3 * times[name].encode(size):.3g}" for size in sizes),
                f"{1e9 * times[name].decode(2**18) / 2**18:.3g}",
            )
            for name in shown
        ]
        heads = (*(f"{size:,}" for size in sizes), "ns an entry")
        print_table(("compressor", *heads), lines, right=set(heads))
        for note in dict.fromkeys(times[name].origin.note for name in shown):
            click.echo(f"nominal: {note}")
        return
    ranks = resolve_compressors(overrides)

    check_kept()
    found = calibrate_compressors(ranks)
    _show(found.system)
    keep(found)


def _show(system: TimingModel) -> None:
    click.secho(f"{system.world_size} ranks at once: milliseconds by elements (low-rank: times rank)", bold=True)
    sizes = (2**10, 2**14, 2**18, 2**22)
    lines = [
        (
            name,
            *(f"{1e3 * codec.encode(size):.3g}" for size in sizes),
            f"{1e6 * codec.segment_s:.3g}",
            f"{1e6 * codec.piece_s:.3g}",
            f"{1e6 * codec.tensor_s:.3g}",
            f"{1e9 * codec.decode(2**18) / 2**18:.3g}",
        )
        for name, codec in system.codecs.items()
    ]
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


_PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
_OUT = click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write.")


@profile.command(short_help="Your own model, by a function that returns (model, batch).")
@click.argument("name", metavar="FILE.py:FUNCTION|MODEL")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--on", metavar="DEVICE", help="Do not measure: count operators for this device (a100, rtx3090, ...).")
@_OUT
def function(name: str, words: tuple[str, ...], on: str | None, out: Path | None) -> None:
    """Measure the model that a function of yours returns on this machine, or count it for another device.

    FUNCTION takes no arguments and returns (model, batch), or (model, batch, loss) where loss(model, batch) is what is
    trained. Keys: optimizer (default sgd), device (cpu or cuda) and, with --on, precision (bf16, fp16, tf32, fp8). For
    example:

    ssfx profile mytrain.py:build_model --on a100 optimizer=adamw
    """
    if name.endswith(".py"):
        raise ConfigError(f"{name} is a file; name its function that returns (model, batch): {name}:FUNCTION")
    keys = ("optimizer", "device", "precision")
    given = key_values(words, keys if is_own(name) else (*keys, "batch_size"))
    optimizer, precision = given.get("optimizer", "sgd"), given.get("precision", "fp32")
    if optimizer not in STEP_TRAFFIC:
        raise unknown("optimizer", optimizer, STEP_TRAFFIC)
    if given.get("device", "auto") not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device={given['device']}: it is cpu or cuda here; for another device write --on DEVICE")
    if precision not in _PRECISIONS:
        raise unknown("precision", precision, _PRECISIONS)
    if on is None and "precision" in given:
        raise ConfigError(
            f"what is measured here has the precision of the script; drop precision={precision}, or count it with "
            "--on DEVICE"
        )
    if on is not None and "device" in given:
        raise ConfigError(
            f"--on {on} counts for a device that need not be here, device={given['device']} measures; drop one"
        )

    path = _checked(out or Path(f"{name.rpartition(':')[2]}.json"))
    if on is not None and not is_own(name):
        _keep(_catalogued(check_choice("model", name), on, given), path)
        return

    from ssfx.lab.workloads.own_batch import counted_batch, timed_batch

    if on is None:
        found = timed_batch(name, local_device(given.get("device", "auto")), optimizer)
    else:
        found = counted_batch(name, on, optimizer, precision)
    _keep(found, path)


def _catalogued(name: str, on: str, given: Mapping[str, str]) -> Profile:
    """Return the profile of a model that ssfx has on a device that need not be here."""
    batch_size = given.get("batch_size")
    if batch_size is not None and not batch_size.isdecimal():
        raise ConfigError(f"batch_size must be a whole number of at least 1, got {batch_size!r}")
    return counted_profile(
        name,
        device(on).name,
        None if batch_size is None else int(batch_size),
        given.get("optimizer"),
        given.get("precision", "fp32"),
    )


@profile.command(short_help="A training that ran anywhere, by its torch.profiler trace.")
@click.argument("words", nargs=-1, required=True, metavar="trace=FILE|FOLDER [KEY=VALUE]...")
@_OUT
def trace(words: tuple[str, ...], out: Path | None) -> None:
    """Read when gradients were ready from a trace of torch.profiler (.json, .json.gz), or a folder of ranks' traces.

    Record whole iterations with record_shapes=True. Keys: model, for the names of gradients: a model that ssfx has, or
    FILE.py:FUNCTION; batch_size, the samples of a rank and step. For example:

    ssfx profile trace=trace.json.gz model=mytrain.py:build_model batch_size=32
    """
    given = key_values(words, ("trace", "model", "batch_size"))
    if "trace" not in given:
        raise ConfigError("which trace? write ssfx profile trace=FILE")
    batch_size = given.get("batch_size", "0")
    if not batch_size.isdecimal():
        raise ConfigError(f"batch_size must be a whole number of at least 1, got {batch_size!r}")
    path, model = Path(given["trace"]).expanduser(), given.get("model", "")
    kept = _checked(out or Path(f"{path.name.partition('.')[0]}.profile.json"))
    found = profile_of_traces(path, model, _tensors(model) if model else None, int(batch_size))
    _keep(found, kept)
    if not found.batch_size:
        click.echo("the batch size is not known, so samples/s will be those of 1; add batch_size=N")


def _tensors(model: str) -> tuple[TensorSpec, ...]:
    """Return the gradients of a model in the order in which they are ready."""
    if is_own(model):
        from ssfx.lab.workloads.own_batch import ready_order

        return ready_order(model)
    from ssfx.perf_model.operator_counts import model_work

    return model_work(model).tensors


def _checked(path: Path) -> Path:
    """Return `path`; ConfigError, before anything is measured, where no file can be written there."""
    check_writable(path.parent, "name another file with --out")
    return path


def _keep(found: Profile, path: Path) -> None:
    """Write the profile, say what is in it, and what to type next."""
    try:
        found.save(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    show_profile(found)
    click.echo(str(path))
    where = "CLUSTER" if found.device in ("cpu", "cuda") else f"box cluster.device={found.device}"
    say(f"Next: ssfx advise profile={path} cluster={where}", "  ", "")


def show_profile(found: Profile) -> None:
    """Print the parts of an iteration, and which gradients come first, last and latest."""
    ranks = "one rank" if found.ranks == 1 else f"{found.ranks} ranks at once"
    click.secho(f"{found.model} on {found.device}, batch {found.batch_size}, {ranks}", bold=True)
    parts = {
        "forward": found.forward_s,
        "backward": found.backward_s,
        "step": found.step_s,
        "other": found.other_s,
    }
    total_s = sum(parts.values())
    lines = [(name, f"{1e3 * seconds:.3f}", f"{seconds / total_s:.1%}") for name, seconds in parts.items()]
    print_table(("part", "ms", "share"), [*lines, ("iteration", f"{1e3 * total_s:.3f}", "")], right={"ms", "share"})
    slowest = max(range(len(found.tensors)), key=lambda i: found.ready_gap_s[i])
    say(
        f"{len(found.tensors)} tensors, {sum(found.numel):,} elements; first ready: {found.tensors[0].name}, last: "
        f"{found.tensors[-1].name}, longest wait: {1e3 * found.ready_gap_s[slowest]:.3f} ms for "
        f"{found.tensors[slowest].name}",
        "  ",
        "",
    )
    where = ", ".join(filter(None, (found.origin.hardware, found.origin.date)))
    say(f"{found.origin.kind}{f' on {where}' if where else ''}: {found.origin.note}", "  ", "")


BUSY_CORES = 0.3
"""From here on others disturb what is measured."""


@profile.command(short_help="What exchanges take on this machine, or between emulated hosts on it.")
@overrides_argument
def network(overrides: tuple[str, ...]) -> None:
    """Measure what exchanges take on this machine, or between emulated hosts on it.

    Keys: cluster (local or an emulated one) and world_size. For example: ssfx profile network cluster=emulated_2x1gbit
    """
    cluster, ranks = resolve_network(overrides)

    check_kept()
    found = calibrate_network(cluster, ranks)
    system = found.system
    click.secho(f"{system.name}, {system.world_size} ranks: milliseconds by bytes that one rank contributes", bold=True)
    sizes = (4, 2**10, 2**16, 2**20, 2**24, 2**28)
    lines = [
        (name, *(f"{1e3 * curve(size):.3g}" if curve.covers(size) else "-" for size in sizes), f"{busy:.0%}")
        for (name, curve), busy in ((one, system.contention.occupancy[one[0]]) for one in system.exchange.items())
    ]
    heads = ("4 B", "1 KiB", "64 KiB", "1 MiB", "16 MiB", "256 MiB")
    print_table(("exchange", *heads, "computing"), lines, right={*heads, "computing"})
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
    points = json.dumps(found.points, separators=(",", ":"))
    write_json(folder / points_name(system.name, system.world_size), points)
    path = folder / file_name(system.name, system.world_size)
    write_json(path, system.to_json())
    click.echo(f"{system.origin.kind} on {system.origin.hardware}, {system.origin.date}: {system.origin.note}")
    if found.others > BUSY_CORES:
        click.secho("other processes were busy during it: repeat it on an idle machine", fg="yellow")
    click.echo(str(path))
