"""`ssfx plan`: which gradients are compressed together, where, how hard, and which collective carries them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ssfx.cli.completion import overrides_argument
from ssfx.cli.plan_table import COLUMNS, RIGHT, bytes_text, lanes_of
from ssfx.cli.sharded_plan import show_sharded
from ssfx.cli.terminal import print_table
from ssfx.config.plans import plan_of, resolve_plan
from ssfx.core.errors import ConfigError
from ssfx.core.progress import doing
from ssfx.perf_model.cautions import cautions
from ssfx.perf_model.recorded_times import measured_on
from ssfx.schemes.search.auto_why import why_lines
from ssfx.simulator.pricing.degenerate import degenerated
from ssfx.simulator.pricing.device_memory import device_memory
from ssfx.simulator.pricing.message_sizes import plan_bytes, plan_traffic
from ssfx.simulator.pricing.timeline import evaluate

if TYPE_CHECKING:
    from ssfx.config.plans import Planned
    from ssfx.planning.costs import Costs
    from ssfx.planning.plan import Plan
    from ssfx.planning.profile import Profile


@click.command(short_help="Print the plan of a scheme for a model on a cluster.")
@overrides_argument
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON, the text that its digest is made of.")
@click.option("--why", is_flag=True, help="Say of every bucket what any other exchange would cost; scheme=auto.")
def plan(overrides: tuple[str, ...], as_json: bool, why: bool) -> None:
    """Print the plan of a scheme for a model on a cluster, and what it sends.

    For example: ssfx plan model=bert_large cluster=64gpu scheme=auto density=0.01 --why
    """
    planned = resolve_plan(overrides)
    if planned.sharding is not None:
        show_sharded(planned, as_json, why)
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
    sent, dense = plan_bytes(made), profile.nbytes
    share = f"{100 * sent / dense:.3g} % of the dense {bytes_text(dense)}"
    elements = sum(spec.numel for spec in made.tensors)
    click.echo(
        f"total: {len(made.buckets)} buckets, {len(made.launch_order)} lanes, {len(made.tensors)} tensors, "
        f"{elements:,} elements; {bytes_text(sent)} per rank and step, {share}"
    )
    traffic = plan_traffic(made)
    click.echo(f"on the wire: {bytes_text(traffic.sent_bytes)} sent in {traffic.messages} messages per rank and step")
    for note, text in made.notes:
        if note != "predicted_ms":  # F below, to more digits
            click.echo(f"{note}: {text}")
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
    click.echo(f"profile: {profile.origin.kind}, {on_what}. {profile.origin.note}")
    for caution in cautions(profile, planned.cluster):
        click.secho(f"beware: {caution}", fg="yellow")
    if outside := _extrapolated(made, costs):
        click.secho(outside, fg="yellow")
    click.echo(f"costs: {costs.origin.kind}{measured_on(costs.origin)}. {costs.origin.note}")
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
