"""What a case is simulated with: the system of its cluster, and the profile of its model on the devices there."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from ssfx.core.case import Case, ClusterChoice
from ssfx.core.files import as_it_is
from ssfx.perf_model.build_timing_model import system_on
from ssfx.perf_model.cluster import Cluster
from ssfx.perf_model.cluster_file import cluster_on
from ssfx.perf_model.gpu_record import gpu_record, record_path
from ssfx.perf_model.recorded_times import recorded_profile, with_package, written_dir
from ssfx.perf_model.saved_profiles import given_time, is_saved, lasting, saved_profile
from ssfx.perf_model.shipped_profiles import profile_on
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.profile import Profile


@dataclass(frozen=True)
class Target:
    """A model on a cluster, as times; `counted`: the system with what rows from before the fused kernels rest on."""

    cluster: Cluster
    system: TimingModel
    profile: Profile
    counted: TimingModel

    @cached_property
    def calibration(self) -> str:
        """The kind of the costs, and a digest of all that a simulation is computed from but `Case.counts`."""
        text = self.counted.to_json() + self.profile.to_json()
        return f"{self.system.origin.kind}:{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    @cached_property
    def system_digest(self) -> str:
        """The digest of the system alone."""
        return self.system.digest


def target_of(case: Case) -> Target:
    """Return the target of `case`, with any calibration; ConfigError when something was never calibrated."""
    where = case.cluster, case.world_size, case.device, case.model, case.batch_size, case.optimizer, case.precision
    return target_at(*where, fused=bool(case.counts))


def target_at(
    choice: ClusterChoice,
    world_size: int | None,
    device: str,
    model: str,
    batch_size: int,
    optimizer: str,
    precision: str = "fp32",
    *,
    fused: bool = True,
) -> Target:
    """Return the target of a model at `batch_size` per rank and in `precision` on a cluster.

    Made once for files as they are now: a cluster's, a device's or a profile's may be the user's, and what was measured
    here is known from the moment at which it was written.
    """
    names = (choice.name, str(choice.options.get("device", "")), model)
    own = [Path(name).expanduser() for name in names if name.endswith((".yaml", ".yml", ".json"))]
    files = tuple(map(as_it_is, (*own, record_path(), written_dir())))  # a folder changes with what is put into it
    return _target_at(files, choice, world_size, device, model, batch_size, optimizer, precision, fused)


@lru_cache(maxsize=256)
def _target_at(
    files: tuple[str, ...],
    choice: ClusterChoice,
    world_size: int | None,
    device: str,
    model: str,
    batch_size: int,
    optimizer: str,
    precision: str,
    fused: bool,
) -> Target:
    cluster, counted = _on(files, choice, world_size, device)
    profile = profile_for(model, cluster, batch_size, optimizer, precision)
    if profile.host_bound:
        cluster = replace(cluster, host_bound=True)
        counted = system_on(cluster, fused=False)
    return Target(cluster, system_on(cluster) if fused else counted, profile, counted)


def profile_for(model: str, cluster: Cluster, batch_size: int, optimizer: str, precision: str = "fp32") -> Profile:
    """Return the profile of `model` on the devices of `cluster` at `batch_size` samples per rank, with `optimizer`.

    On a cluster that is recorded it is what was measured with as many ranks at once, if anything was; elsewhere what
    was measured of such a device alone. What was measured of another batch size or optimizer does not count, and in
    another precision than fp32 nothing was: then the profile is analytic. The file of a saved profile, in place of a
    model, is that profile. A model with the time of an iteration, "resnet50(iteration_ms=253)", has its profile scaled
    to it.
    """
    model, iteration_ms = given_time(model)
    if iteration_ms is not None:
        alone = replace(cluster, host_us=0.0)  # what the host does is in the time that was given
        return lasting(profile_for(model, alone, batch_size, optimizer, precision), iteration_ms)
    if is_saved(model):
        return saved_profile(model, cluster.device, batch_size, optimizer, precision, cluster.host_us)
    if cluster.calibration == "recorded" and precision == "fp32":
        ranks = cluster.world_size
        if recorded := recorded_profile(model, cluster.device, ranks, batch_size=batch_size, optimizer=optimizer):
            return recorded
    on = cluster.device
    if on == "cuda" and (record := gpu_record()):
        if recorded := record.profile(model, batch_size, optimizer, precision):
            return recorded
        on = record.sheet or on
        cluster = replace(cluster, host_us=record.host_us if cluster.host_us is None else cluster.host_us)
    found = profile_on(model, on, batch_size, precision, optimizer, cluster.host_s)
    return replace(found, origin=with_package(found.origin)) if found.origin.kind == "measured" else found


@lru_cache(maxsize=64)
def _on(
    _files: tuple[str, ...], choice: ClusterChoice, world_size: int | None, device: str
) -> tuple[Cluster, TimingModel]:
    cluster = cluster_on(choice, world_size, device)
    return cluster, system_on(cluster, fused=False)
