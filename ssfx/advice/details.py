"""What stands behind an answer, a sentence each: where the time goes, what was checked, what the times do not say."""

from collections.abc import Iterator
from math import inf

from ssfx.advice.alike import alike
from ssfx.advice.break_even import BreakEvens
from ssfx.advice.checked import where_checked
from ssfx.advice.map_2026 import place_on_map
from ssfx.advice.ranked import Entry, Ranking
from ssfx.advice.setting import TUNED
from ssfx.core.numbers import rounded
from ssfx.schemes import schemes
from ssfx.schemes.search.extra_steps import clipping_matters
from ssfx.simulator.why import why

NEVER_SHARDED = "never on GPUs; sharded steps were timed on ranks of one machine of CPUs alone"


def details(advice: Ranking) -> list[str]:
    """Return the sentences, those about time first."""
    return [
        *_time(advice),
        *_checked(advice),
        *_quality(advice),
        *(f"extrapolated: {one}" for one in advice.extrapolated),
    ]


def _time(advice: Ranking) -> Iterator[str]:
    dense, setting = advice.dense, advice.setting
    best = next(iter(advice.recommendable), None)
    exposed = dense.trial.simulated.exposed_comm_s / dense.iteration_s
    yield (
        f"tuned dense ({dense.trial.title}, {1e3 * dense.iteration_s:.1f} ms a step) waits for communication in "
        f"{exposed:.1%} of its step; a device alone takes {1e3 * setting.alone_s:.1f} ms"
    )
    for entry in [*filter(None, [best]), *(one for one in advice.compressing[:1] if one is not best)]:
        yield from why(dense.trial.simulated, entry.trial.simulated, ("tuned dense", entry.name))
    if best is not None:
        yield _bandwidth(advice, best)
    if needed := setting.memory(dense.trial):
        yield f"memory of tuned dense {needed.text}"
    if beside := alike(setting.profile):
        yield f"alike: {beside}"
    if setting.cluster.tables:
        yield f"exchanges: {setting.cluster.exchange_text}"


def _bandwidth(advice: Ranking, best: Entry) -> str:
    """Return for which bandwidth the answer would change."""
    if schemes[best.scheme].chooses:
        return f"{best.name} chooses at every bandwidth, dense included: it is never slower by these times"
    found = BreakEvens(advice.setting, [one for one in TUNED if one in {entry.scheme for entry in advice.entries}])
    if not found.possible:
        return "exchanges here were measured, so other bandwidths have no answer"
    even = found.of(best.name).gbps
    if even in (0, inf):
        return f"a step of {best.name} is shorter than a dense one at {'every' if even else 'no'} bandwidth"
    return f"a step of {best.name} is shorter than a dense one below {rounded(even, 3)} Gbit/s a link"


def _checked(advice: Ranking) -> Iterator[str]:
    setting, trust = advice.setting, advice.dense.trust
    yield f"checked: {NEVER_SHARDED if setting.sharding else where_checked(setting.cluster)}"
    if not setting.sharding and (place := place_on_map(setting.cluster)):
        yield f"map: {place}"
    for one in (advice.dense, *advice.recommendable[:1]):
        if one.trust:
            yield f"{one.name}: {one.trust.said}"
    if trust and trust.borrowed:
        kind, group = setting.system.origin.kind, trust.group
        yield f"the error bars are borrowed: systems with {group} costs were scored, none with {kind} ones as here"
    if len(advice.codec_kinds) > 1:
        listed = "; ".join(f"{', '.join(names)} {kind}" for kind, names in advice.codec_kinds.items())
        yield f"times of compressors are not of one kind ({listed}): an order between those is not to be relied on"


def _quality(advice: Ranking) -> Iterator[str]:
    yield "a faster step says nothing about convergence: --quality does"
    if clipping_matters(advice.setting.network):
        yield "say clip_norm=1 if training clips gradients: what is recorded differs"
    assumed = [one.name for one in advice.entries if _assumes_rows(one)]
    if assumed:
        yield f"{', '.join(assumed)} assumes how many rows of an embedding table a batch touches (option touched)"


def _assumes_rows(entry: Entry) -> bool:
    return any(lane.collective.startswith("row_sparse") for _, lane in entry.trial.plan.lanes())
