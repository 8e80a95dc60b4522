"""The Setting: a model on a cluster at a density, where every scheme can be tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ssfx.advice.cases import over_shards, step_inside
from ssfx.advice.sending import recorded_spec
from ssfx.advice.sharded_steps import Asked, Others, ShardedStep, plan_sharded, simulate_sharded
from ssfx.perf_model.build_timing_model import system_on
from ssfx.perf_model.cluster import Cluster, Link
from ssfx.perf_model.mesh import Mesh, mesh_on
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.exempt import exempt_by_name, exempted
from ssfx.planning.plan import Plan, Segment
from ssfx.planning.profile import Profile
from ssfx.planning.sharding import Sharding
from ssfx.schemes import schemes
from ssfx.schemes.base import CompressOptions
from ssfx.schemes.local_updates import outer_step_of
from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.search.extra_steps import TRAIN_STEPS
from ssfx.schemes.search.recorded_network import Network
from ssfx.schemes.transport import keeps_fraction
from ssfx.simulator import Simulated, simulate
from ssfx.simulator.pricing.device_memory import DeviceMemory, device_memory, sharded_memory

TUNED = ("ddp", "hierarchical", "omnireduce", "ssgd", "wfbp")
"""Tuned dense is the best of these. Parallax is left out: its times rest on assumed gradients."""

METHODS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "hierarchical_fp16": ("hierarchical", {"compressor": "fp16"}),
    "ddp_4bit": ("ddp_quantized", {"compressor": "qsgd(bits=4,bucket=32,norm=max)"}),
    "ddp_1bit": ("ddp_quantized", {"compressor": "onebit"}),
}
"""Methods that people would try and that are no scheme's default: a scheme with options."""

AS_IT_COMES_MIB = 25
"""The bucket cap of torch's DDP where none was chosen."""

BUCKET_CAPS_MIB = (5, 25, 100)
"""What the bucket cap of DDP and of hierarchical DDP is tuned over."""

WHOLE = "stay_whole"
"""The option with which blocks of a sharded model are not gathered again for backward."""

OVER_SHARDS = ("qsgd(bits=8,norm=max)", "qsgd(bits=4,bucket=32,norm=max,rotate=32)", "onebit")
"""What a sum over shards is tried with, besides 16 bits."""

TASKS = ("pretraining", "fine-tuning")
"""What is trained: new weights unless asked otherwise, or weights that were trained before."""


@dataclass(frozen=True)
class Trial:
    """One simulated step of a scheme with options that differ from its defaults."""

    scheme: str
    options: Mapping[str, Any]
    simulated: Simulated

    @property
    def name(self) -> str:
        """One of METHODS, or else the scheme's."""
        mine = (self.scheme, dict(self.options))
        return next((name for name, method in METHODS.items() if method == mine), self.scheme)

    @property
    def tuned(self) -> bool:
        """Whether tuned dense is chosen from it."""
        return self.scheme in TUNED and not self.compressed

    @property
    def iteration_s(self) -> float:
        """Seconds of a step."""
        return self.simulated.iteration_s

    @property
    def plan(self) -> Plan:
        """What was simulated."""
        return self.simulated.plan

    @cached_property
    def compressed(self) -> tuple[Segment, ...]:
        """The segments that are compressed; none where the scheme decided to stay dense."""
        return tuple(one for _, lane in self.plan.lanes() for one in lane.segments if one.compressor is not None)

    @property
    def title(self) -> str:
        """The scheme and what it was tuned to."""
        if self.options.get(WHOLE):
            return f"{self.scheme}, blocks stay whole after forward"
        if compressor := self.options.get("compressor"):
            return f"{self.scheme}, {compressor}"
        cap = self.options.get("bucket_cap_bytes")
        return f"{self.scheme}, {cap >> 20} MiB buckets" if cap else self.scheme


@dataclass(frozen=True)
class Setting:
    """A model on a cluster; `density` is for every scheme that has one. `system_of` gives the times of a cluster.

    `precision` says what the profile computes in, for people. `train_steps`: how many steps dense training takes, and
    `clipped` whether it clips gradients; None where it was not said.
    """

    cluster: Cluster
    profile: Profile
    density: float = 0.01
    system_of: Callable[[Cluster], TimingModel] = system_on
    precision: str = "fp32"
    accumulate: int = 1
    """Passes of forward and backward before one exchange."""
    train_steps: int | None = None
    clipped: bool | None = None
    fine_tuning: bool = False
    """Which of TASKS; published quality is of either."""
    sharding: Sharding | None = None
    """How ranks share the model; None: each has all of it."""
    shard_compressor: str | None = None
    """Of the sum over shards beside replicas; None: torch's own sum."""
    measured: str = ""
    """What a measured step on all devices says of the network; "" where none was measured."""
    others: Others = field(default_factory=Others)
    """How weights of a sharded model are gathered, and the kinds that travel as they are, of whole models too."""

    @cached_property
    def system(self) -> TimingModel:
        """The cluster as times."""
        return self.system_of(self.cluster)

    @cached_property
    def network(self) -> Network:
        """What trains here, as records of quality know it."""
        found = Network.of(self.profile)
        batch = found.batch and found.batch * self.accumulate
        return replace(found, clipped=self.clipped, batch=batch)

    @property
    def alone_s(self) -> float:
        """Seconds of a step of one device alone."""
        return self.profile.alone_s(self.accumulate)

    @property
    def samples(self) -> int:
        """Samples of a device and step."""
        return self.profile.batch_size * self.accumulate

    @property
    def steps(self) -> int:
        """Steps of dense training that methods are held to."""
        return self.train_steps or TRAIN_STEPS

    @property
    def _budget(self) -> dict[str, Any]:
        known = {"train_steps": self.train_steps, "clipped": self.clipped}
        return {"quality": "normal", **{name: value for name, value in known.items() if value is not None}}

    def memory(self, trial: Trial) -> DeviceMemory | None:
        """Return the device memory that a rank of a trial takes; None on hosts."""
        on, step = self.cluster.device, trial.simulated
        if isinstance(step, ShardedStep):
            return sharded_memory(self.profile, step.sharded, on, precision=self.precision)
        return device_memory(self.profile, trial.plan, on, precision=self.precision)

    @property
    def gbps(self) -> float:
        """Line rate of one network card in Gbit/s; of the link inside a node where there is only one node."""
        return self._link.gbps

    @property
    def _link(self) -> Link:
        return self.cluster.inter if self.cluster.nodes > 1 else self.cluster.intra

    def at(self, gbps: float) -> Setting:
        """Return the same setting with another rate of that link, measured exchanges in proportion."""
        link = replace(self._link, gbps=gbps)
        tables = tuple(one.at_rate(gbps / self.gbps) for one in self.cluster.tables)
        cluster = replace(self.cluster, tables=tables)
        cluster = replace(cluster, inter=link) if cluster.nodes > 1 else replace(cluster, intra=link)
        return replace(self, cluster=cluster)

    def names(self) -> list[str]:
        """Return what is compared unless asked otherwise: schemes that exchange every step, and METHODS where others.

        Of rounds no quality is recorded yet.
        """
        nodes = self.cluster.nodes > 1 and self.cluster.devices_per_node > 1
        extra = [name for name, (scheme, _) in METHODS.items() if nodes or scheme != "hierarchical"]
        return [
            *(name for name in schemes.names() if not schemes[name].in_rounds),
            *(extra if self.sharding is None else ()),
        ]

    def as_it_comes(self) -> Trial:
        """Return the step of torch's own DDP or sharding, with what is torch's default."""
        return self.trial("ddp", {} if self.sharding else {"bucket_cap_bytes": AS_IT_COMES_MIB << 20})

    def accumulated(self, trial: Trial, passes: int) -> Simulated:
        """Return a step of so many passes, of which the last alone exchanges."""
        if isinstance(trial.simulated, ShardedStep):
            return simulate_sharded(trial.simulated.sharded, self.profile, self._mesh, accumulate=passes)
        return self._simulated(trial.plan, passes)

    def variants(self, scheme: str) -> list[dict[str, Any]]:
        """Return the options that `scheme` is tried with; several where it is tuned."""
        if scheme in METHODS:
            return [METHODS[scheme][1]]
        if self.sharding is not None and (tried := self._sharded_variants(scheme)):
            return tried
        if scheme in ("ddp", "hierarchical"):
            return [{"bucket_cap_bytes": cap << 20} for cap in BUCKET_CAPS_MIB]
        if schemes[scheme].chooses:
            return [self._budget]
        if schemes[scheme].in_rounds:
            return [outer_step_of(schemes[scheme], self.train_steps or 0)]
        defaults = schemes[scheme].defaults
        usual = schemes[scheme].compressor
        if usual is not None and (recorded := recorded_spec(usual, self.network, self.steps)) != usual:
            return [{"compressor": recorded}]
        takes_density = isinstance(defaults, CompressOptions) and keeps_fraction(defaults.compressor)
        return [{"density": self.density} if takes_density else {}]

    def best(self, scheme: str) -> Trial:
        """Return the fastest variant of `scheme`; ConfigError where it cannot be planned or was never calibrated."""
        name = METHODS[scheme][0] if scheme in METHODS else scheme
        trials = [self.trial(name, given) for given in self.variants(scheme)]
        if self.sharding is not None:  # blocks that stay whole may not fit
            trials.sort(key=lambda one: (not ((needed := self.memory(one)) is None or needed.fits), one.iteration_s))
            return trials[0]
        return min(trials, key=lambda one: one.iteration_s)

    def _sharded_variants(self, scheme: str) -> list[dict[str, Any]]:
        """Return the options that a scheme is tried with on a sharded model; [] for the usual ones."""
        if scheme == "ddp":
            return [{}, {WHOLE: True}]
        if scheme == "ddp_fp16":
            return [{"compressor": "bf16"}]
        if scheme == "ddp_quantized" and self.sharding is not None and self.sharding.kind == "fsdp":
            return [{"compressor": spec} for spec in OVER_SHARDS]
        if schemes[scheme].chooses:  # no replica shares a node with another
            return [self._budget]
        return []

    @cached_property
    def _mesh(self) -> Mesh:
        assert self.sharding is not None
        return mesh_on(self.cluster, self.sharding.shards)

    @property
    def _nodes(self) -> int:
        """Devices of a node; 0 where there is one node."""
        return self.cluster.devices_per_node if self.cluster.nodes > 1 else 0

    def _sharded_trial(self, sharding: Sharding, scheme: str, given: Mapping[str, Any]) -> Trial:
        options = {key: value for key, value in given.items() if key != WHOLE}
        if sharding.kind == "fsdp":  # no replica shares a node with another
            options = schemes[scheme].for_nodes(options, self._nodes)
        sharding = replace(sharding, reshard_after_forward=sharding.reshard_after_forward and WHOLE not in given)
        sums = over_shards(self.shard_compressor)
        found = plan_sharded(self.profile, sharding, Asked(scheme, options), sums, self.others, self._mesh)
        return Trial(scheme, given, simulate_sharded(found, self.profile, self._mesh, accumulate=self.accumulate))

    def trial(self, scheme: str, given: Mapping[str, Any]) -> Trial:
        """Return `scheme` planned and simulated with the options `given`."""
        if self.sharding is not None:
            return self._sharded_trial(self.sharding, scheme, given)
        compressor = given.get("compressor", schemes[scheme].compressor)
        costs = self.system.planning_costs(compressor, given.get("density"))
        plan = make_plan(scheme, self.profile, costs, schemes[scheme].for_nodes(given, self._nodes))
        plan = exempted(plan, exempt_by_name(plan.tensors, self.others.exempt))
        return Trial(scheme, given, self._simulated(plan, self.accumulate))

    def _simulated(self, plan: Plan, passes: int) -> Simulated:
        inside = step_inside(plan, self.profile, self.cluster, passes)
        return simulate(plan, self.profile, self.system, accumulate=passes, inside=inside)
