"""What the comparisons with all papers need: a claim's number as a factor, and steps of its methods on its clusters.

Which steps give a claim's number is written once, as a Prediction. Where the steps come from is left open: simulated on
the spot (Simulations), or read from rows (`evaluation.row_steps`). A published number that is scored is never typed
here or in the modules of the papers: it is read from the ledger.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from experiments.common.claims.ledger import claims_by_id
from experiments.common.validation.scores import Pair
from ssfx.advice.checked import network_of
from ssfx.advice.sending import DENSE, ways
from ssfx.core.case import ClusterChoice
from ssfx.perf_model.target import Target, target_at
from ssfx.planning.plan import Plan
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan
from ssfx.simulator import simulate


def number(claim_id: str) -> float:
    """Return the one number that a claim states; ValueError for one that states none or a range."""
    value = claims_by_id()[claim_id].value
    if not isinstance(value, (int, float)):
        raise ValueError(f"claim {claim_id} states no single number")
    return float(value)


def stated(claim_id: str) -> tuple[float, float]:
    """Return the range that a claim states; ValueError for one without a number."""
    bounds = claims_by_id()[claim_id].bounds
    if bounds is None:
        raise ValueError(f"claim {claim_id} states no number")
    return bounds


def factor(claim_id: str) -> float:
    """Return a stated gain, slowdown or growth as the ratio of two times: 12 % more and 1.12x are both 1.12."""
    unit, value = claims_by_id()[claim_id].unit or "", number(claim_id)
    if unit.startswith("x"):
        return value
    return 1 + value / {"fraction": 1, "percent": 100}[unit]


def remainder(claim_id: str) -> float:
    """Return what a stated reduction leaves, as the ratio of two times: 81 % less is 0.19."""
    return 1 - number(claim_id)


@dataclass(frozen=True)
class PaperMethod:
    """A scheme with the options, compressor and density that make it a method of a paper."""

    scheme: str
    options: tuple[tuple[str, Any], ...] = ()


def method(scheme: str, **options: Any) -> PaperMethod:
    """Return a scheme with options as Scheme.options takes them."""
    return PaperMethod(scheme, tuple(sorted(options.items())))


@dataclass(frozen=True)
class PaperSetting:
    """Where a step was timed: a cluster of conf/ with what differs from its file, a model, and samples per device."""

    cluster: str
    model: str
    batch_size: int
    changed: tuple[tuple[str, int], ...] = ()


Timed = tuple[PaperMethod, PaperSetting]
"""A method in one of the settings in which its paper timed it."""


@dataclass(frozen=True)
class PaperStep:
    """The parts of a step that papers quote, in seconds; `extrapolated` if a cost lay beyond what is known of it."""

    iteration_s: float
    exposed_comm_s: float
    comm_s: float
    sparsify_s: float
    extrapolated: bool = False
    sent: tuple[str, ...] = ()
    """The ways in which it sends gradients, as `ssfx.advice.sending` names them."""
    network: str = ""
    """The kind of network that its ranks exchange over."""


class Steps(Protocol):
    """Where steps come from."""

    def step(self, method: PaperMethod, at: PaperSetting) -> PaperStep:
        """Return one step of a method; RunError where it is not known."""

    def alone_s(self, at: PaperSetting) -> float:
        """Return the time of a step of one device alone."""


Value = Callable[[Steps], float]
"""How a number follows from steps."""


@dataclass
class Simulations:
    """Steps simulated on the spot, with times of one calibration, each once."""

    calibration: str = "published"
    found: dict[tuple[PaperMethod, PaperSetting], PaperStep] = field(default_factory=dict)

    def step(self, method: PaperMethod, at: PaperSetting) -> PaperStep:
        """Return one simulated step."""
        if (method, at) not in self.found:
            on, plan = self.target(at), self.plan(method, at)
            one = simulate(plan, on.profile, on.system)
            parts = one.metrics(1)
            self.found[method, at] = PaperStep(
                one.iteration_s,
                one.exposed_comm_s,
                one.comm_s,
                parts["sparsify_s"] or 0.0,
                bool(one.outside),
                ways(plan),
                network_of(on.cluster),
            )
        return self.found[method, at]

    def plan(self, method: PaperMethod, at: PaperSetting) -> Plan:
        """Return the plan of a method."""
        on, options = self.target(at), dict(method.options)
        online = schemes[method.scheme].online(options)
        costs = on.system.planning_costs(online.compressor, online.density)
        return make_plan(method.scheme, on.profile, costs, options)

    def alone_s(self, at: PaperSetting) -> float:
        """Return what the profile of the model takes there without any exchange."""
        return self.target(at).profile.alone_s()

    def target(self, at: PaperSetting) -> Target:
        """Return the model on the cluster, as the papers trained it: with SGD."""
        choice = ClusterChoice(at.cluster, {"calibration": self.calibration, **dict(at.changed)})
        return target_at(choice, None, "auto", at.model, at.batch_size, "sgd")


@dataclass(frozen=True)
class Prediction:
    """How one claim's number follows from steps: a time, or a ratio of two times, as `factor` gives the stated one.

    `panel` and `label` are what scores call it. `whole_step`: the number is of whole iterations, not of a part.
    """

    claim: str
    panel: str
    label: str
    value: Value
    stated: Callable[[str], float] = factor
    whole_step: bool = True
    settings: tuple[Timed, ...] = ()

    def pair(self, steps: Steps) -> Pair:
        """Return the predicted and the published value."""
        known = [steps.step(*one).extrapolated for one in self.settings]
        watched = _Watched(steps)
        value = self.value(watched)
        sent = {way for one in watched.asked for way in one.sent}
        return Pair(
            self.panel,
            self.label,
            value,
            self.stated(self.claim),
            extrapolated=any(known),
            claim=self.claim,
            whole_step=self.whole_step,
            sent=tuple(sorted(sent - {DENSE} or sent)),
            network=max((one.network for one in watched.asked), default=""),
        )


@dataclass
class _Watched:
    """Steps, and which of them a prediction asked for."""

    steps: Steps
    asked: list[PaperStep] = field(default_factory=list)

    def step(self, method: PaperMethod, at: PaperSetting) -> PaperStep:
        self.asked.append(self.steps.step(method, at))
        return self.asked[-1]

    def alone_s(self, at: PaperSetting) -> float:
        return self.steps.alone_s(at)


def over(slower: Timed, faster: Timed, *, part: str = "iteration_s") -> Value:
    """Return how many times as long one iteration, or a part of it, takes as the other."""
    return lambda steps: float(getattr(steps.step(*slower), part) / getattr(steps.step(*faster), part))


def mean(values: list[Value]) -> Value:
    """Return the arithmetic mean, as the papers take it."""
    return lambda steps: sum(value(steps) for value in values) / len(values)


def largest(values: Iterable[Value]) -> Value:
    """Return the largest of several."""
    listed = list(values)
    return lambda steps: max(value(steps) for value in listed)
