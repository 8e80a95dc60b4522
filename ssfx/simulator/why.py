"""Why one simulated step takes longer than another: their critical paths, stage by stage."""

from dataclasses import dataclass

from ssfx.simulator.pricing.task import STAGES, Stage
from ssfx.simulator.result import Simulated

_MOST_NAMED = 3
_FROM_SHARE = 0.05


@dataclass(frozen=True)
class Difference:
    """Seconds that a stage takes on the critical paths of a first and a second step."""

    stage: Stage
    first_s: float
    second_s: float

    @property
    def more_s(self) -> float:
        """Seconds that the second one takes more."""
        return self.second_s - self.first_s


def differences(first: Simulated, second: Simulated) -> list[Difference]:
    """Return the stages on either critical path; what they take more sums to the difference of the iterations."""
    before, after = first.critical_s(), second.critical_s()
    return [Difference(stage, before[stage], after[stage]) for stage in STAGES if before[stage] or after[stage]]


def why(first: Simulated, second: Simulated, names: tuple[str, str] | None = None) -> list[str]:
    """Return plain sentences on what makes `second` take another time than `first`; None: the names of their schemes.

    The first one names the stages that contribute most, the second what contention has to do with it.
    """
    one, other = names or (first.plan.scheme, second.plan.scheme)
    more_s = second.iteration_s - first.iteration_s
    parts = sorted(differences(first, second), key=lambda part: -abs(part.more_s))
    moved_s = sum(abs(part.more_s) for part in parts)
    named = [part for part in parts[:_MOST_NAMED] if part.more_s and abs(part.more_s) >= _FROM_SHARE * moved_s]
    if not named:
        return [f"{other} takes as long as {one}, {_ms(first.iteration_s)}, and for the same reasons"]
    how = "longer" if more_s > 0 else "less"
    listed = ", ".join(f"{_signed(part.more_s)} {_NAMES[part.stage]}" for part in named)
    rest_s = more_s - sum(part.more_s for part in named)
    rest = f", {_signed(rest_s)} elsewhere" if round(1e6 * rest_s) else ""
    lines = [
        f"{other} takes {_ms(abs(more_s))} ({abs(more_s) / first.iteration_s:.1%}) {how} than {one}: on the critical "
        f"path {listed}{rest}"
    ]
    slowed = first.slowdown_s(), second.slowdown_s()
    if max(slowed) > 1e-6:
        lines.append(f"of it, tasks that disturb one another cost {_ms(slowed[1])}, in {one} {_ms(slowed[0])}")
    return lines


_NAMES: dict[Stage, str] = {
    "forward": "forward",
    "backward": "backward",
    "compress": "compression",
    "to_host": "copying to the host",
    "from_host": "copying from the host",
    "exchange": "exchange",
    "decompress": "decompression",
    "step": "optimizer step",
    "other": "other",
}


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms"


def _signed(seconds: float) -> str:
    return f"{1e3 * seconds:+.2f} ms"
