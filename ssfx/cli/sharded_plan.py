"""What `ssfx plan` prints of a model that `fully_shard` shares among ranks: gathers of weights, and both sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ssfx.advice.cases import over_shards
from ssfx.advice.sharded_steps import Asked, plan_sharded, simulate_sharded
from ssfx.cli.plan_table import COLUMNS, RIGHT, bytes_text, lanes_of
from ssfx.cli.terminal import print_table
from ssfx.config.plans import profile_of
from ssfx.core.errors import ConfigError
from ssfx.perf_model.mesh import mesh_on
from ssfx.simulator.pricing.device_memory import sharded_memory
from ssfx.simulator.pricing.shard_messages import gathered_bytes

if TYPE_CHECKING:
    from ssfx.config.plans import Planned
    from ssfx.perf_model.mesh import Mesh
    from ssfx.planning.plan import Plan
    from ssfx.planning.profile import Profile
    from ssfx.planning.sharding import ShardedPlan

_ROWS = 8
"""Lanes that are printed of a plan; a group has one, and blocks are alike."""


def show_sharded(planned: Planned, as_json: bool, why: bool) -> None:
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
    _show_gathers(planned, found)
    _show_plan("sums over shards", found.shards)
    if found.replicas is not None:
        _show_plan("sums over replicas", found.replicas)
    _show_time(planned, found, profile, mesh)
    click.echo(f"digest {found.plan.digest}")


def _show_gathers(planned: Planned, found: ShardedPlan) -> None:
    sizes = gathered_bytes(found)
    again = "again for backward" if found.sharding.reshard_after_forward else "once"
    by = found.sharding.gather_dtype if found.weights is None else planned.others.weights
    click.echo(
        f"gathers of weights in {by}: {len(sizes)} groups, {again}; a rank brings {bytes_text(sum(sizes))} to one of "
        f"all, {bytes_text(max(sizes))} to that of the largest"
    )


def _show_plan(title: str, plan: Plan) -> None:
    rows = list(lanes_of(plan))
    click.echo(f"{title}, {plan.world_size} ranks, {len(rows)} messages of shards")
    print_table(COLUMNS, rows[:_ROWS], right=RIGHT)
    if len(rows) > _ROWS:
        click.echo(f"  and {len(rows) - _ROWS} more")


def _show_time(planned: Planned, found: ShardedPlan, profile: Profile, mesh: Mesh) -> None:
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
