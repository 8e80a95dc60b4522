"""Real runs, and what the simulator makes of the very plans they executed."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Literal

from experiments.common.validation.scores import Pair
from ssfx.advice.checked import CPUS
from ssfx.advice.sending import ways
from ssfx.core.case import Case
from ssfx.core.errors import RunError
from ssfx.core.files import loads, read, write_json
from ssfx.core.paths import reference_dir
from ssfx.core.rows import Row
from ssfx.core.spec import name_of
from ssfx.lab.results.comparisons import metric
from ssfx.perf_model.recorded_times import recorded_profile, recorded_system
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.simulator import SelectionStats, Simulated, simulate
from ssfx.simulator.pricing.plan_messages import PlanMessages

EXPERIMENT = "validation"
PLANS = "validation_plans.json"


LEAST_BEYOND = 0.05
"""Share of an iteration that must lie beyond its compute pass for the error of that part to be scored."""

PARTS = ("forward_s", "backward_s", "sparsify_s", "exposed_comm_s", "step_s", "other_s")
"""What an iteration consists of."""


@dataclass(frozen=True)
class ComputeTime:
    """How many times as long as in its profile a pass without exchange took before a step, of the slowest rank in both.

    `both` is of forward and backward together, which stands for the optimizer's step and the loading of data.
    """

    forward: float
    backward: float
    both: float


@dataclass(frozen=True)
class RecordedStep:
    """One step of a run and its simulation with the compute time measured before it and as many elements as were sent.

    `parts` are the simulated seconds of each of PARTS.
    """

    compute: ComputeTime
    actual_s: float
    parts: dict[str, float]
    pass_s: float
    """Seconds of the pass that exchanged nothing before the step."""

    @property
    def predicted_s(self) -> float:
        """Simulated seconds of the whole step."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Comparison:
    """One real run and what the simulator makes of it."""

    row: Row
    """The run."""
    simulated: Simulated
    """Its simulation from calibration alone."""
    at_known_density: Simulated
    """Its simulation with what the compressor let pass in the same training on other networks, if there is any."""
    steps: tuple[RecordedStep, ...]
    """Simulations of its timed steps. Before each the run made a pass that exchanges nothing: how fast the machine
    computed just then."""

    @property
    def panel(self) -> str:
        """Model, cluster and number of ranks: what schemes are compared within."""
        return f"{self.row.case.model} {self.row.case.cluster} x{self.row.case.world_size}"

    @property
    def compute(self) -> float:
        """Median over the steps of the compute time, as a multiple of the profile's."""
        return median(step.compute.both for step in self.steps)

    def pair(self, by: Literal["calibration", "density", "steps"] = "calibration") -> Pair:
        """Return the iteration times: from calibration alone, at the known density, or by the steps.

        The last is the actual time, times the median of simulated over actual of the steps.
        """
        actual_s = metric(self.row, "iteration_s")
        low_s, high_s = (self.row.metrics.get(f"iteration_{end}_s") for end in ("p10", "p90"))
        spread = (high_s - low_s) / actual_s if low_s is not None and high_s is not None else None
        simulated = self.at_known_density if by == "density" else self.simulated
        predicted_s = simulated.iteration_s
        if by == "steps":
            predicted_s = actual_s * median(step.predicted_s / step.actual_s for step in self.steps)
        return Pair(
            self.panel,
            self.row.case.scheme,
            predicted_s,
            actual_s,
            spread,
            bool(simulated.outside),
            sent=ways(simulated.plan),
            network=CPUS,
        )

    def beyond_compute(self, by: Literal["calibration", "steps"] = "calibration") -> Pair | None:
        """Return how long an iteration takes beyond a forward and backward pass that exchanges nothing, in seconds.

        Exchanges, compression, the optimizer's step and what else disturbs computing: what a simulation adds to a
        profile. From calibration the pass is that of the profile, by the steps the one measured before each step. None
        where less than LEAST_BEYOND of the actual iteration lies beyond the pass: its error is then noise.
        """
        actual_s = median(step.actual_s - step.pass_s for step in self.steps)
        if actual_s < LEAST_BEYOND * median(step.actual_s for step in self.steps):
            return None
        profiled_s = median(step.pass_s / step.compute.both for step in self.steps)
        predicted_s = self.simulated.iteration_s - profiled_s
        if by == "steps":
            predicted_s = median(step.predicted_s - step.pass_s for step in self.steps)
        return replace(self.pair(), predicted=predicted_s, actual=actual_s, whole_step=False)

    def parts(self) -> dict[str, tuple[float, float]]:
        """Return (simulated step by step, actual) median seconds of each of PARTS: where an error comes from."""
        actual = self.row.metrics
        return {
            name: (median(step.parts[name] for step in self.steps), float(actual.get(name) or 0.0)) for name in PARTS
        }


def comparisons(rows: Iterable[Row], plans: dict[str, Plan]) -> list[Comparison]:
    """Return the runs of `rows` with their simulations, in the order of the rows.

    The plan is the one that the run executed, the profile and the system were measured with as many ranks at work and
    are the shipped ones: what was measured here may be of another machine than the rows. Raises RunError when one of
    them was not recorded.
    """
    rows, found = list(rows), []
    system_of = cache(lambda name, ranks: recorded_system(name, ranks, shipped=True))
    profile_of = cache(lambda model, device, ranks: recorded_profile(model, device, ranks, shipped=True))
    for row in rows:
        case = row.case
        plan = plans.get(str(row.manifest["plan_digest"]))
        if plan is None:
            raise RunError(f"the plan {row.manifest['plan_digest']} of run {row.run_id} is not in {PLANS}")
        system = system_of(str(case.cluster), case.world_size)
        if system is None:
            raise RunError(
                f"no system is recorded for cluster={case.cluster} with {case.world_size} ranks; "
                f"run: ssfx profile network cluster={case.cluster} world_size={case.world_size}"
            )
        profile = profile_of(case.model, case.device, case.world_size)
        if profile is None or profile.batch_size != case.batch_size:
            raise RunError(
                f"no profile is recorded for {case.model} with {case.world_size} ranks and batch size "
                f"{case.batch_size}; run: ssfx profile model={case.model} ranks={case.world_size}"
            )
        ordered = profile.in_order(plan.tensors)
        steps = tuple(stepwise(row, plan, ordered, system))
        usual = simulate(plan, ordered, system)
        known = selected(case, plan, density_elsewhere(row, rows))
        informed = simulate(plan, ordered, system, selection=known) if known.achieved_density else usual
        found.append(Comparison(row, usual, informed, steps))
    return found


def density_elsewhere(row: Row, rows: Iterable[Row]) -> float | None:
    """Return the achieved density of the same training on other clusters, the median of steps and runs.

    It depends on the gradients, not on the network. None where there is no such run.
    """

    def training(case: Case) -> tuple[object, ...]:
        return case.model, case.world_size, case.scheme, case.compressor, case.density

    same = (one for one in rows if training(one.case) == training(row.case) and one.case.cluster != row.case.cluster)
    densities = [median(found) for one in same if (found := one.samples.get("greatest_density"))]
    return median(densities) if densities else None


def stepwise(row: Row, plan: Plan, profile: Profile, system: TimingModel) -> Iterator[RecordedStep]:
    """Yield every step of the run with its own simulation; RunError when the run made no passes before its steps."""
    densities = row.samples.get("greatest_density", [])
    times = compute_times(row, profile)
    profiled_s = profile.forward_s + profile.backward_s
    priced = cache(lambda known: PlanMessages(system, known, notes=True))
    for compute, density, actual_s in zip(times, densities, row.samples["iteration_s"], strict=True):
        known = selected(row.case, plan, density)
        there = stretched(profile, compute)
        metrics = simulate(plan, there, system, selection=known, priced=priced(known)).metrics(1)
        parts = {name: float(metrics[name] or 0.0) for name in PARTS}
        yield RecordedStep(compute, actual_s, parts, compute.both * profiled_s)


def compute_times(row: Row, profile: Profile) -> list[ComputeTime]:
    """Return the compute times of the passes before the run's steps; RunError when it made none."""
    if "control_forward_s" not in row.samples:
        raise RunError(
            f"run {row.run_id} has no passes without exchange before its steps; run it with time_compute_only=true"
        )
    both_s = profile.forward_s + profile.backward_s
    passes = zip(row.samples["control_forward_s"], row.samples["control_backward_s"], strict=True)
    return [
        ComputeTime(forward_s / profile.forward_s, backward_s / profile.backward_s, (forward_s + backward_s) / both_s)
        for forward_s, backward_s in passes
    ]


def selected(case: Case, plan: Plan, density: float | None) -> SelectionStats:
    """Return how much the run's compressor let pass: a property of its gradients, of which no simulation knows.

    Where some tensors are dense the density says nothing, because they count as sent. None: as much as it should.
    """
    dense = any(segment.dense for _, lane in plan.lanes() for segment in lane.segments)
    if case.compressor is None or case.density is None or dense or density is None:
        return SelectionStats()
    return SelectionStats(((name_of(case.compressor), density / case.density),))


def stretched(profile: Profile, compute: ComputeTime) -> Profile:
    """Return the profile with its times multiplied by `compute`."""
    return replace(
        profile,
        forward_s=compute.forward * profile.forward_s,
        ready_gap_s=tuple(compute.backward * gap_s for gap_s in profile.ready_gap_s),
        step_s=compute.both * profile.step_s,
        other_s=compute.both * profile.other_s,
    )


@cache
def recorded_plans() -> dict[str, Plan]:
    """Return the plans that the reference runs executed, by digest."""
    return {plan.digest: plan for plan in _plans_in(reference_dir() / PLANS)}


def _plans_in(path: Path) -> list[Plan]:
    def plans(text: str) -> list[Plan]:
        return [Plan.from_json(json.dumps(one)) for one in loads(text)]

    return read(path, plans) if path.exists() else []


def write_plans(rows: Iterable[Row], runs: Path, path: Path) -> int:
    """Write the plans that `rows` executed as a JSON list into `path`, one a line; return how many there are.

    Those that it holds already are kept, the others are found in the folders of `runs`.
    """
    known = {plan.digest: plan.to_json() for plan in _plans_in(path)}
    texts: dict[str, str] = {}
    for row in rows:
        digest = str(row.manifest["plan_digest"])
        if digest in known:
            texts[digest] = known[digest]
        if digest not in texts:
            folder = runs / row.run_id / f"attempt-{row.manifest['attempt']}"
            texts[digest] = read(folder / "plan.json", Plan.from_json).to_json()
    for digest, text in texts.items():
        if Plan.from_json(text).digest != digest:
            raise RunError(f"the plan in the run directory is not the one that was executed ({digest})")
    write_json(path, "[\n" + ",\n".join(texts.values()) + "\n]")
    return len(texts)
