"""`ssfx plan`: which gradients are compressed together, where, how hard, and which collective carries them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from ssfx.advice.cases import over_shards
from ssfx.advice.sharded_steps import Asked, plan_sharded, simulate_sharded
from ssfx.cli.completion import overrides_argument
from ssfx.cli.terminal import print_table, say
from ssfx.config.plans import plan_of, profile_of, resolve_plan
from ssfx.core.errors import ConfigError
from ssfx.core.progress import doing
from ssfx.perf_model.cautions import cautions
from ssfx.perf_model.mesh import mesh_on
from ssfx.perf_model.recorded_times import measured_on
from ssfx.schemes.search.auto_why import why_lines
from ssfx.simulator.pricing.degenerate import degenerated
from ssfx.simulator.pricing.device_memory import device_memory, sharded_memory
from ssfx.simulator.pricing.message_sizes import lane_bytes, plan_bytes, plan_traffic
from ssfx.simulator.pricing.sharded_step import gathered_bytes
from ssfx.simulator.pricing.timeline import evaluate

if TYPE_CHECKING:
    from ssfx.config.plans import Planned
    from ssfx.planning.costs import Costs
    from ssfx.planning.plan import Lane, Plan
    from ssfx.planning.profile import Profile


INDENT = "    "
"""Before the lines of a sentence but the first."""
_ROWS = 8
"""Lanes that are printed of a plan; a group has one, and blocks are alike."""


@click.command()
@overrides_argument
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON, the text that its digest is made of.")
@click.option("--why", is_flag=True, help="Say of every bucket what any other exchange would cost; scheme=auto.")
def plan(overrides: tuple[str, ...], as_json: bool, why: bool) -> None:
    """Print the plan of a scheme for a model on a cluster, and what it sends.

    For example: ssfx plan model=bert_large cluster=64gpu scheme=auto density=0.01 --why
    """
    planned = resolve_plan(overrides)
    if planned.sharding is not None:
        _show_sharded(planned, as_json, why)
        return
    with doing(f"planning {planned.parts.scheme} for {planned.model} on {planned.cluster.world_size} ranks"):
        made, profile, costs = plan_of(planned)
    if why:
        with doing("pricing every other exchange"):
            _explain(planned, made, profile, costs, as_json)
        return
    if as_json:
        click.echo(made.to_json())
        return

    parts = planned.parts
    sparse = (
        f", {parts.compressor}" + (f" at density {parts.density:g}" if parts.density else "")
        if parts.compressor
        else ""
    )
    click.secho(
        f"{made.scheme} for {planned.model} on {planned.cluster.name}, {made.world_size} ranks{sparse}", bold=True
    )
    print_table(COLUMNS, lanes_of(made), right=RIGHT)
    often = "step" if made.rounds is None else "round"
    sent, dense = plan_bytes(made), profile.nbytes
    share = f"{100 * sent / dense:.3g} % of the dense {bytes_text(dense)}"
    elements = sum(spec.numel for spec in made.tensors)
    click.echo(
        f"total: {len(made.buckets)} buckets, {len(made.launch_order)} lanes, {len(made.tensors)} tensors, "
        f"{elements:,} elements; {bytes_text(sent)} per rank and {often}, {share}"
    )
    traffic = plan_traffic(made)
    click.echo(
        f"on the wire: {bytes_text(traffic.sent_bytes)} sent in {traffic.messages} messages per rank and {often}"
    )
    if made.rounds is not None:
        click.echo(made.rounds.text)
    for note, text in made.notes:
        if note not in ("predicted_ms", "not used"):  # F below, to more digits, and a line for all that was not used
            say(f"{note}: {text}", INDENT, first="")
    if any(note == "not used" for note, _ in made.notes):
        click.echo("not used: other methods, each for a reason that --why gives")
    if odd := degenerated(made, parts.density):
        click.secho(odd, fg="yellow")
    needed = device_memory(profile, made, planned.cluster.device, precision=planned.precision)
    if needed:
        click.secho(f"memory: {needed.text}", fg=None if needed.fits else "yellow")
    if isinstance(costs, str) or (needed is not None and not needed.fits):
        missing = costs if isinstance(costs, str) else "what does not fit takes none"
        click.secho(f"no predicted time: {missing}", fg="yellow")
        click.echo(f"digest {made.digest}")
        return
    line = evaluate(made, profile, costs)
    click.echo(
        f"predicted F = {_seconds(line.total_s)} from the start of backward until all gradients are exchanged "
        f"(backward {_seconds(profile.backward_s)}, with compression {_seconds(line.backward_end_s)})"
    )
    precision = "" if planned.precision == "fp32" else f", {planned.precision}"
    on_what = f"{profile.device}{measured_on(profile.origin)}, batch {profile.batch_size}{precision}"
    say(f"profile: {profile.origin.kind}, {on_what}. {profile.origin.how}", INDENT, first="")
    for caution in cautions(profile, planned.cluster):
        say(f"beware: {caution}", INDENT, first="", fg="yellow")
    if outside := _extrapolated(made, costs):
        click.secho(outside, fg="yellow")
    say(f"costs: {costs.origin.kind}{measured_on(costs.origin)}. {costs.origin.note}", INDENT, first="")
    click.echo(f"digest {made.digest}")


def _explain(planned: Planned, made: Plan, profile: Profile, costs: Costs | str, as_json: bool) -> None:
    """Print why a plan of auto is what it is."""
    parts = planned.parts
    if parts.scheme != "auto" or isinstance(costs, str) or made.world_size == 1:
        raise ConfigError("--why explains plans of several ranks by scheme=auto; drop it, or choose scheme=auto")
    if as_json:
        raise ConfigError("--why is text; drop it, or --json")
    title, *lines = why_lines(planned.model, planned.cluster.name, made, profile, costs, parts.plan_options)
    click.secho(title, bold=True)
    for line in lines:
        click.echo(line)


def _extrapolated(made: Plan, costs: Costs) -> str:
    """Return one line when segments are larger or smaller than anything their costs were obtained for, else ""."""
    segments = [segment for _, lane in made.lanes() for segment in lane.segments if not segment.dense]
    curves = {"device": costs.encode, "host": costs.host}
    outside = [s for s in segments if not curves[s.placement].covers(made.numel(s))]
    if not outside:
        return ""
    known = f"{costs.encode.sizes[0]:,.0f} .. {costs.encode.sizes[-1]:,.0f} elements"
    return (
        f"extrapolated: compression times are known for {known}; {len(outside)} of {len(segments)} segments lie outside"
    )


def _seconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


# ---- a model that `fully_shard` shares among ranks: gathers of weights, and both sums ----


def _show_sharded(planned: Planned, as_json: bool, why: bool) -> None:
    """Print the plans of a sharded model, what they send, the memory and the time of a step."""
    if why:
        raise ConfigError("--why explains plans of scheme=auto, which plans no sharded model; drop it")
    parts, sharding, profile = planned.parts, planned.sharding, profile_of(planned)
    assert sharding is not None
    memory = None if parts.memory == "none" else parts.memory
    asked = Asked(parts.scheme, parts.plan_options, memory)
    mesh = mesh_on(planned.cluster, sharding.shards)
    found = plan_sharded(profile, sharding, asked, over_shards(planned.shard_compressor), planned.others, mesh)
    if as_json:
        click.echo(found.plan.to_json())
        return
    click.secho(f"{parts.scheme} for {planned.model} on {planned.cluster.name}, {sharding.text}", bold=True)
    sizes = gathered_bytes(found)
    again = "again for backward" if found.sharding.reshard_after_forward else "once"
    by = found.sharding.gather_dtype if found.weights is None else planned.others.weights
    click.echo(
        f"gathers of weights in {by}: {len(sizes)} groups, {again}; a rank brings {bytes_text(sum(sizes))} to one of "
        f"all, {bytes_text(max(sizes))} to that of the largest"
    )
    _show_plan("sums over shards", found.shards)
    if found.replicas is not None:
        _show_plan("sums over replicas", found.replicas)
    needed = sharded_memory(profile, found, planned.cluster.device, precision=planned.precision)
    if needed:
        click.secho(f"memory: {needed.text}", fg=None if needed.fits else "yellow")
    step = simulate_sharded(found, profile, mesh)
    volumes = step.volumes
    click.echo(
        f"bytes per rank and step, gathers too: {bytes_text(volumes.contributed)} handed over, "
        f"{bytes_text(volumes.sent)} sent"
    )
    if needed is None or needed.fits:
        click.echo(
            f"predicted step: {1e3 * step.iteration_s:.2f} ms, one device alone {1e3 * profile.alone_s():.2f} ms"
        )
    for line in step.outside:
        click.secho(f"extrapolated: {line}", fg="yellow")
    click.echo(f"digest {found.plan.digest}")


def _show_plan(title: str, plan: Plan) -> None:
    rows = list(lanes_of(plan))
    click.echo(f"{title}, {plan.world_size} ranks, {len(rows)} messages of shards")
    print_table(COLUMNS, rows[:_ROWS], right=RIGHT)
    if len(rows) > _ROWS:
        click.echo(f"  and {len(rows) - _ROWS} more")


COLUMNS = (
    "bucket",
    "lane",
    "collective",
    "segments",
    "tensors",
    "elements",
    "compressor",
    "density",
    "place",
    "payload",
)
RIGHT = {"bucket", "lane", "segments", "tensors", "elements", "density", "payload"}


def lanes_of(made: Plan) -> Iterator[Sequence[str]]:
    """Yield the row of COLUMNS of every lane."""
    for (bucket, position), lane in made.lanes():
        yield (
            str(bucket),
            str(position),
            lane.collective,
            str(len(lane.segments)),
            str(len(lane.tensors)),
            f"{made.numel(lane):,}",
            _joined(segment.compressor or "dense" for segment in lane.segments),
            _densities(lane),
            _joined(segment.placement for segment in lane.segments),
            bytes_text(lane_bytes(made, lane)),
        )


def _joined(words: Iterable[str]) -> str:
    return "+".join(dict.fromkeys(words))


def _densities(lane: Lane) -> str:
    found = sorted({segment.density for segment in lane.segments})
    return f"{found[0]:.3g}" if len(found) == 1 else f"{found[0]:.3g}..{found[-1]:.3g}"


def bytes_text(count: int) -> str:
    """Return a number of bytes in the largest unit that it fills."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"
