"""Real runs beside what the simulator makes of the very plans they executed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from ssfx.errors import RunError
from ssfx.paths import reference_dir
from ssfx.plan import Plan, TensorSpec
from ssfx.profile import Profile
from ssfx.recorded import recorded_profile, recorded_system
from ssfx.results.rows import Row
from ssfx.simulator import Behaviour, Simulated, simulate
from ssfx.system import Overheads, System
from ssfx.validation.scores import Pair

EXPERIMENT = "validation"
PLANS = "validation_plans.json"


@dataclass(frozen=True)
class Pace:
    """How many times as long as their profile passes without exchange took beside a run, of the slowest rank in both.

    `both` is of forward and backward together, which stands for all other computing.
    """

    forward: float
    backward: float
    both: float


@dataclass(frozen=True)
class Comparison:
    """One real run and its simulation, and the same told what happened besides exchanges while it ran.

    Between its steps the run made passes that exchange nothing: they say how fast the shared machine was just then.
    `paced` is the simulation at that pace, with as many elements selected as the run's compressor let pass.
    """

    row: Row
    simulated: Simulated
    paced: Simulated
    pace: Pace

    @property
    def panel(self) -> str:
        """Model, cluster and number of ranks: what schemes are compared within."""
        return f"{self.row.case.model} {self.row.case.cluster} x{self.row.case.world_size}"

    def pair(self, paced: bool = False) -> Pair:
        """Return the iteration times; `paced`: simulated at the pace of the run."""
        metrics = self.row.metrics
        actual_s = metrics["iteration_s"]
        assert actual_s is not None
        low_s, high_s = metrics.get("iteration_p10_s"), metrics.get("iteration_p90_s")
        spread = (high_s - low_s) / actual_s if low_s is not None and high_s is not None else None
        case = self.row.case
        simulated = self.paced if paced else self.simulated
        return Pair(self.panel, case.scheme, simulated.iteration_s, actual_s, spread, bool(simulated.outside))


def comparisons(rows: Iterable[Row], plans: dict[str, Plan]) -> list[Comparison]:
    """Return the runs of `rows` beside their simulation, in the order of the rows.

    The plan is the one that the run executed, the profile and the system were measured with as many ranks at work and
    are the shipped ones: what was measured here may be of another machine than the rows. Raises RunError when one of
    them was not recorded.
    """
    found = []
    for row in rows:
        case = row.case
        plan = plans.get(str(row.manifest["plan_digest"]))
        if plan is None:
            raise RunError(f"the plan {row.manifest['plan_digest']} of run {row.run_id} is not in {PLANS}")
        system = recorded_system(case.cluster, case.world_size, shipped=True)
        if system is None:
            raise RunError(
                f"no system is recorded for cluster={case.cluster} with {case.world_size} ranks; "
                f"run: ssfx profile network cluster={case.cluster} world_size={case.world_size}"
            )
        profile = recorded_profile(case.model, case.device, case.world_size, shipped=True)
        if profile is None or profile.batch_size != case.batch_size:
            raise RunError(
                f"no profile is recorded for {case.model} with {case.world_size} ranks and batch size "
                f"{case.batch_size}; run: ssfx profile model={case.model} ranks={case.world_size}"
            )
        ordered = in_order(profile, plan.tensors)
        pace = pace_of(row, profile)
        told = selected(row, plan)
        paced = simulate(plan, at_pace(ordered, pace), computing_at(system, pace.both), behaviour=told)
        found.append(Comparison(row, simulate(plan, ordered, system), paced, pace))
    return found


def pace_of(row: Row, profile: Profile) -> Pace:
    """Return the pace of the run's control passes; RunError when it made none."""
    forward_s, backward_s = (row.metrics.get(f"control_{name}_s") for name in ("forward", "backward"))
    if forward_s is None or backward_s is None:
        raise RunError(f"run {row.run_id} has no passes without exchange beside its steps; run it with control=true")
    profiled_s = profile.forward_s + profile.backward_s
    return Pace(forward_s / profile.forward_s, backward_s / profile.backward_s, (forward_s + backward_s) / profiled_s)


def selected(row: Row, plan: Plan) -> Behaviour:
    """Return how much the run's compressor let pass: a property of its gradients, of which no simulation knows.

    Where some tensors are dense the row does not tell, because its density counts them as sent.
    """
    case, achieved = row.case, row.metrics.get("achieved_density")
    dense = any(segment.dense for _, lane in plan.lanes() for segment in lane.segments)
    if case.compressor is None or case.density is None or achieved is None or dense:
        return Behaviour()
    return Behaviour(((case.compressor.partition("(")[0], achieved / case.density),))


def at_pace(profile: Profile, pace: Pace) -> Profile:
    """Return the profile of a machine that takes `pace` times as long."""
    return replace(
        profile,
        forward_s=pace.forward * profile.forward_s,
        ready_gap_s=tuple(pace.backward * gap_s for gap_s in profile.ready_gap_s),
        step_s=pace.both * profile.step_s,
        other_s=pace.both * profile.other_s,
    )


def computing_at(system: System, pace: float) -> System:
    """Return the system with compression and the runtime's own work taking `pace` times as long; links stay."""
    codecs = {
        name: replace(
            codec, encode=codec.encode.scaled(pace), host=codec.host.scaled(pace), decode=codec.decode.scaled(pace),
            segment_s=pace * codec.segment_s, tensor_s=pace * codec.tensor_s,
        )
        for name, codec in system.codecs.items()
    }  # fmt: skip
    overheads = Overheads(**{name: pace * value for name, value in asdict(system.overheads).items()})
    return replace(system, codecs=codecs, overheads=overheads)


def in_order(profile: Profile, tensors: tuple[TensorSpec, ...]) -> Profile:
    """Return the profile with its tensors in another order; a tensor is not ready before those that precede it."""
    at_s, ready_s = 0.0, {}
    for spec, gap_s in zip(profile.tensors, profile.ready_gap_s, strict=True):
        at_s += gap_s
        ready_s[spec.name] = at_s
    reached_s, gaps = 0.0, []
    for spec in tensors:
        gaps.append(max(0.0, ready_s[spec.name] - reached_s))
        reached_s = max(reached_s, ready_s[spec.name])
    return replace(profile, tensors=tensors, ready_gap_s=tuple(gaps))


@cache
def recorded_plans() -> dict[str, Plan]:
    """Return the plans that the reference runs executed, by digest."""
    path = reference_dir() / PLANS
    texts = json.loads(path.read_text()) if path.exists() else []
    return {plan.digest: plan for plan in (Plan.from_json(json.dumps(text)) for text in texts)}


def write_plans(rows: Iterable[Row], runs: Path, path: Path) -> int:
    """Write the plans that `rows` executed as a JSON list into `path`, one a line; return how many there are."""
    texts: dict[str, str] = {}
    for row in rows:
        digest = str(row.manifest["plan_digest"])
        if digest not in texts:
            folder = runs / row.run_id / f"attempt-{row.manifest['attempt']}"
            texts[digest] = Plan.from_json((folder / "plan.json").read_text()).to_json()
    for digest, text in texts.items():
        if Plan.from_json(text).digest != digest:
            raise RunError(f"the plan in the run directory is not the one that was executed ({digest})")
    path.write_text("[\n" + ",\n".join(texts.values()) + "\n]\n")
    return len(texts)


PARTS = ("forward_s", "backward_s", "sparsify_s", "exposed_comm_s", "step_s", "other_s")
"""What an iteration consists of."""


def parts(comparison: Comparison) -> dict[str, tuple[float, float]]:
    """Return (simulated at the run's pace, actual) seconds of the parts of an iteration: where an error comes from."""
    simulated, actual = comparison.paced.metrics(1), comparison.row.metrics
    return {name: (float(simulated[name] or 0.0), float(actual.get(name) or 0.0)) for name in PARTS}
