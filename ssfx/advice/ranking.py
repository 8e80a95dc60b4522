"""advise(): all schemes on one setting, ranked as far as the error of the simulator allows."""

from collections.abc import Iterable, Sequence

from ssfx.advice.answer import answer_of
from ssfx.advice.break_even import BreakEven, BreakEvens
from ssfx.advice.checked import network_of
from ssfx.advice.ranked import Entry as Entry
from ssfx.advice.ranked import Ranking
from ssfx.advice.screen import as_text, first_screen
from ssfx.advice.sending import ways
from ssfx.advice.setting import TUNED, Setting, Trial
from ssfx.advice.trust import Trust, trust_in_sending
from ssfx.core.errors import ConfigError
from ssfx.core.progress import doing
from ssfx.schemes import schemes


class Advice(Ranking):
    """A ranking that is printed as the first screen of `ssfx advise`."""

    def __str__(self) -> str:
        """Return that screen."""
        return as_text(first_screen(answer_of(self)))


def advise(setting: Setting, names: Iterable[str] | None = None, trust: Trust | None = None) -> Advice:
    """Return the schemes `names` (None: all) compared; tuned dense is always among them.

    `trust` None takes what validation found for what sends alike. ConfigError when there is nothing to compare: one
    device alone, or a system on which no dense scheme can be simulated.
    """
    if setting.cluster.world_size == 1:
        raise ConfigError(f"one device exchanges nothing, so there is nothing to compare on {setting.cluster.name} x1")
    trials: list[Trial] = []
    left_out = []
    wanted = sorted({*(setting.names() if names is None else names), *TUNED})
    ranks = setting.cluster.world_size
    with doing(f"simulating {len(wanted)} schemes on {ranks} ranks"):
        for number, name in enumerate(wanted, 1):
            try:
                with doing(f"planning and simulating {name} on {ranks} ranks, {number} of {len(wanted)} schemes"):
                    found = setting.best(name)
                needed = setting.memory(found)
                if needed and not needed.fits:
                    raise ConfigError(needed.text)
                if all((one.scheme, one.options) != (found.scheme, found.options) for one in trials):
                    trials.append(found)
            except ConfigError as error:
                left_out.append((name, str(error)))
    # A scheme that leaves everything dense takes as long as tuned dense, which then is what to choose.
    trials.sort(key=lambda one: (float(f"{one.iteration_s:.4g}"), not one.tuned, one.iteration_s, one.scheme))
    dense = next((one for one in trials if one.tuned), None)
    if dense is None:
        why = next(text for name, text in left_out if name in TUNED)
        if why.startswith("does not fit"):
            raise ConfigError(f"{setting.profile.model} on cluster={setting.cluster.name} {why}")
        raise ConfigError(f"no dense scheme can be simulated on cluster={setting.cluster.name}: {why}")
    kind, network = setting.system.origin.kind, network_of(setting.cluster)
    # No step of shards was checked: the errors of others say nothing of it.
    trusts = [None if setting.sharding else trust or trust_in_sending(kind, ways(one.plan), network) for one in trials]
    unscored = trusts[trials.index(dense)]
    errors = [held.mean if (held := one or unscored) else 0.0 for one in trusts]
    places = ranges([(one.iteration_s, error) for one, error in zip(trials, errors, strict=True)])
    entries = [
        Entry(one, setting, dense.iteration_s, place, held)
        for one, place, held in zip(trials, places, trusts, strict=True)
    ]
    return Advice(setting, tuple(entries), tuple(left_out))


def break_evens(advice: Advice) -> dict[str, BreakEven]:
    """Return the break-even bandwidth of each method but those that tuned dense is chosen from.

    Nothing where the system does not depend on the bandwidth. It takes a while: plans are made at many bandwidths.
    """
    found = BreakEvens(advice.setting, [one.scheme for one in advice.entries if one.trial.tuned])
    others = [one for one in advice.entries if one.scheme not in TUNED or one.compressors]
    # What chooses the best of all, dense among them, breaks even everywhere.
    asked = [one.name for one in others if not schemes[one.scheme].chooses] if found.possible else []
    return {name: found.of(name) for name in asked}


def ranges(times: Sequence[tuple[float, float]]) -> list[tuple[int, int]]:
    """Return for each time, of which the second number is its error, the best and the worst place that it may have.

    Two times whose intervals overlap are in no order.
    """

    def before(one: tuple[float, float], other: tuple[float, float]) -> bool:
        return one[0] * (1 + one[1]) < other[0] * (1 - other[1])

    return [
        (1 + sum(before(other, one) for other in times), len(times) - sum(before(one, other) for other in times))
        for one in times
    ]
