"""`ssfx profile FILE.py:FUNCTION` and `ssfx profile trace=FILE`: the user's own model as a file that stands for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ssfx.cli.terminal import print_table, say
from ssfx.core.errors import ConfigError, unknown
from ssfx.core.files import check_writable
from ssfx.lab.config.calibrations import key_values

if TYPE_CHECKING:
    from ssfx.planning.plan import TensorSpec
    from ssfx.planning.profile import Profile

_PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
_OUT = click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write.")


@click.command(short_help="Your own model, by a function that returns (model, batch).")
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
    from ssfx.core.own_code import is_own

    if name.endswith(".py"):
        raise ConfigError(f"{name} is a file; name its function that returns (model, batch): {name}:FUNCTION")
    keys = ("optimizer", "device", "precision")
    given = key_values(words, keys if is_own(name) else (*keys, "batch_size"))
    optimizer, precision = given.get("optimizer", "sgd"), given.get("precision", "fp32")
    from ssfx.perf_model.cluster_file import local_device
    from ssfx.perf_model.roofline import STEP_TRAFFIC

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
        _keep(_catalogued(name, on, given), path)
        return

    from ssfx.lab.workloads.own_batch import counted_batch, timed_batch

    if on is None:
        found = timed_batch(name, local_device(given.get("device", "auto")), optimizer)
    else:
        found = counted_batch(name, on, optimizer, precision)
    _keep(found, path)


def _catalogued(name: str, on: str, given: Mapping[str, str]) -> Profile:
    """Return the profile of a model that ssfx has on a device that need not be here."""
    from ssfx.perf_model.devices import device
    from ssfx.perf_model.roofline import counted_profile

    batch_size = given.get("batch_size")
    if batch_size is not None and not batch_size.isdecimal():
        raise ConfigError(f"batch_size must be a whole number of at least 1, got {batch_size!r}")
    return counted_profile(
        name, device(on).name, None if batch_size is None else int(batch_size), given.get("optimizer"),
        given.get("precision", "fp32"),
    )  # fmt: skip


@click.command(short_help="A training that ran anywhere, by its torch.profiler trace.")
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
    from ssfx.perf_model.rank_traces import profile_of_traces

    path, model = Path(given["trace"]).expanduser(), given.get("model", "")
    kept = _checked(out or Path(f"{path.name.partition('.')[0]}.profile.json"))
    found = profile_of_traces(path, model, _tensors(model) if model else None, int(batch_size))
    _keep(found, kept)
    if not found.batch_size:
        click.echo("the batch size is not known, so samples/s will be those of 1; add batch_size=N")


def _tensors(model: str) -> tuple[TensorSpec, ...]:
    """Return the gradients of a model in the order in which they are ready."""
    from ssfx.core.own_code import is_own

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
        "forward": found.forward_s, "backward": found.backward_s, "step": found.step_s, "other": found.other_s,
    }  # fmt: skip
    total_s = sum(parts.values())
    lines = [(name, f"{1e3 * seconds:.3f}", f"{seconds / total_s:.1%}") for name, seconds in parts.items()]
    print_table(("part", "ms", "share"), [*lines, ("iteration", f"{1e3 * total_s:.3f}", "")], right={"ms", "share"})
    slowest = max(range(len(found.tensors)), key=lambda i: found.ready_gap_s[i])
    say(
        f"{len(found.tensors)} tensors, {sum(found.numel):,} elements; first ready: {found.tensors[0].name}, last: "
        f"{found.tensors[-1].name}, longest wait: {1e3 * found.ready_gap_s[slowest]:.3f} ms for "
        f"{found.tensors[slowest].name}",
        "  ", "",
    )  # fmt: skip
    where = ", ".join(filter(None, (found.origin.hardware, found.origin.date)))
    say(f"{found.origin.kind}{f' on {where}' if where else ''}: {found.origin.note}", "  ", "")
