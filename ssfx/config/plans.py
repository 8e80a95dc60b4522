"""From the words of `ssfx plan` to the plan, its profile and its costs."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ssfx.advice.sharded_steps import Others
from ssfx.config.clusters import check_recorded
from ssfx.config.components import Components, complete, components, on_nodes
from ssfx.config.compose import chosen, compose, expanded
from ssfx.config.iteration_time import KEY, split_words, timed_model
from ssfx.config.overrides import read
from ssfx.config.schema import Settings
from ssfx.config.shared_model import shared_model, with_memory
from ssfx.config.simulations import PLAN_KEYS, with_custom
from ssfx.config.sweep import single
from ssfx.core.errors import ConfigError
from ssfx.perf_model.cluster import Cluster
from ssfx.perf_model.cluster_file import cluster_of
from ssfx.perf_model.devices import has_sheet
from ssfx.perf_model.operator_counts import is_counted
from ssfx.perf_model.plan_costs import costs_on, nominal_costs
from ssfx.perf_model.saved_profiles import is_saved, lasting
from ssfx.perf_model.shipped_profiles import load_shipped
from ssfx.perf_model.target import profile_for
from ssfx.planning.costs import Costs
from ssfx.planning.exempt import exempt_by_name, exempted
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.planning.sharding import Sharding
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan


@dataclass(frozen=True)
class Planned:
    """What `ssfx plan` was asked for."""

    model: str
    cluster: Cluster
    parts: Components
    batch_size: int
    """Samples per rank."""
    optimizer: str
    """By which the network is trained: what compression costs in quality depends on it."""
    iteration_ms: float | None = None
    """Measured time of an iteration on one device, where it was given."""
    precision: str = "fp32"
    """What forward and backward compute in."""
    sharding: Sharding | None = None
    """How the model is shared among ranks."""
    shard_compressor: str | None = None
    """Of the sum over shards beside replicas."""
    others: Others = field(default_factory=Others)
    """How weights of a sharded model are gathered, and the kinds that travel as they are, of whole models too."""


def resolve_plan(words: Iterable[str]) -> Planned:
    """Return the one plan that `words` ask for; ConfigError for a sweep or a key that no plan depends on."""
    words, iteration_ms = split_words(words)
    request = read(words)
    for key in request:
        if key not in PLAN_KEYS and not key.startswith(("scheme.", "compressor.", "cluster.")):
            raise ConfigError(f"a plan does not depend on {key}; it takes {', '.join((*PLAN_KEYS, KEY))}")
    point = single(request, "plan")
    config = compose(complete(with_custom(expanded({"scheme": chosen(point, "scheme"), **point}))))
    settings = Settings.of(config)
    cluster = cluster_of(config["cluster"], settings.world_size, settings.device)
    check_recorded(point, cluster)
    parts = components(config, settings.density, asked="density" in point)
    name, shared = config["model"]["name"], shared_model(settings, cluster)
    return Planned(
        name,
        cluster,
        with_memory(on_nodes(parts, cluster, shared), shared, asked=False),
        settings.batch_size,
        settings.optimizer,
        iteration_ms,
        settings.precision,
        shared,
        settings.shard_compressor,
        Others(settings.weights, settings.exempt),
    )


def plan_of(planned: Planned) -> tuple[Plan, Profile, Costs | str]:
    """Return the plan, its profile, and the costs it rests on, or why there are none.

    The profile is that of `ssfx simulate`, of the cluster's devices; only of a model whose work was never counted,
    or of GPUs without a data sheet, it is the one of other devices. A scheme that plans by costs needs them all:
    ConfigError when one is not shipped. The others do not look at them.
    """
    profile = profile_of(planned)
    cluster = replace(planned.cluster, host_bound=profile.host_bound)
    found: Costs | str
    try:
        found = costs = costs_on(cluster, planned.parts.compressor, planned.parts.density)
    except ConfigError as error:
        if schemes[planned.parts.scheme].profiled:
            raise
        found, costs = str(error), nominal_costs(cluster)
    plan = make_plan(planned.parts.scheme, profile, costs, planned.parts.plan_options)
    named = {segment.compressor for _, lane in plan.lanes() for segment in lane.segments} - {None}
    if isinstance(found, Costs) and named - {planned.parts.compressor}:
        found = costs_on(cluster, None, None)  # of a scheme that sends by others, too
    return exempted(plan, exempt_by_name(plan.tensors, planned.others.exempt)), profile, found


def profile_of(planned: Planned) -> Profile:
    """Return the profile that a plan is made for; see `plan_of`."""
    model, cluster, precision = planned.model, planned.cluster, planned.precision
    if is_saved(model) or precision != "fp32" or (is_counted(model) and has_sheet(cluster.device)):
        timed = timed_model(model, planned.iteration_ms)
        return profile_for(timed, cluster, planned.batch_size, planned.optimizer, precision)
    profile = load_shipped(model)
    return profile if planned.iteration_ms is None else lasting(profile, planned.iteration_ms)
