"""What compressors do to real gradients, where a plan only knows what they are asked for."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ssfx.collectives import Load, Reducer, collectives
from ssfx.core.spec import name_of
from ssfx.planning.plan import Plan
from ssfx.simulator.pricing.message_sizes import plan_rounds


class Volumes(NamedTuple):
    """Bytes of one rank in one step: handed over to the exchanges, and sent."""

    contributed: int
    sent: int


@dataclass(frozen=True)
class SelectionStats:
    """What compressors do to real gradients, where the plan only knows what they are asked for.

    achieved_density: elements sent over elements asked for, by compressor name (1 where absent). Where a threshold lets
    more pass, messages are longer in proportion unless the plan fixes their size; so is decoding, unless it adds up
    whatever a message has room for, as the runtime does. build_up: elements that all ranks select together over those
    of one, in [1, P]; None: no two select the same.
    """

    achieved_density: tuple[tuple[str, float], ...] = ()
    build_up: float | None = None

    def ratio(self, spec: str | None) -> float:
        """Return sent over asked for, of a compressor spec."""
        return dict(self.achieved_density).get(name_of(spec or ""), 1.0)

    def real(self, load: Load, collective: str, specs: Iterable[str | None]) -> Load:
        """Return the load that is longer by what passes too much, where messages follow what was selected."""
        ratio = 1.0
        one = collectives.build(collective)
        if one.variable or isinstance(one, Reducer):
            ratio = max(self.ratio(spec) for spec in specs)
        if ratio == 1 and self.build_up is None:
            return load
        kept = min(load.numel, round(load.kept * ratio))
        return replace(load, nbytes=round(load.nbytes * ratio), kept=kept, build_up=self.build_up)

    def volumes(self, plan: Plan) -> Volumes:
        """Return what one rank hands over to the exchanges of one step, and what it sends; of rounds, on average."""
        contributed = sent = 0
        for lane, nbytes, rounds in plan_rounds(plan):
            collective = collectives.build(lane.collective)
            contributed += nbytes
            for load in rounds:
                real = self.real(load, lane.collective, [segment.compressor for segment in lane.segments])
                contributed += real.nbytes - load.nbytes
                sent += collective.traffic(real).sent_bytes
        steps = plan.rounds.every if plan.rounds is not None else 1
        return Volumes(contributed // steps, sent // steps)
