"""An Advice in plain sentences: what wins and why, what could be won at most, and what the times do not say."""

from collections.abc import Iterator

from ssfx.advice.ranking import Advice, Entry
from ssfx.simulator.why import why

_WORTH = 1.01


def sentences(advice: Advice) -> list[str]:
    """Return the sentences, the most important first."""
    return [*_verdict(advice), _bound(advice), _pairs(advice), *_borrowed(advice), *_mixed(advice), *_quality(advice)]


def _verdict(advice: Advice) -> Iterator[str]:
    dense = advice.dense
    baseline = f"tuned dense ({dense.trial.title}, {1e3 * dense.iteration_s:.1f} ms a step)"
    if not advice.compressing:
        yield f"compression cannot win here: every scheme decided to stay dense, like {baseline}"
        return
    best = advice.compressing[0]
    if best.speedup_vs_dense <= 1:
        near = sum(map(advice.unclear, advice.compressing))
        but = f"; {near} of them only by less than the error of the simulator" if near else ""
        yield f"compression cannot win here: {baseline} beats every scheme that compresses{but}"
    elif best.speedup_vs_dense < _WORTH:
        where = f"by times alone the best scheme is {best.scheme}, against {baseline}"
        yield f"compression gains less than {_WORTH - 1:.0%} here: {where}"
    else:
        but = ", which is less than the error of the simulator" if advice.unclear(best) else ""
        but += "" if best in advice.recommendable else "; its quality, or the error of its times, is unknown"
        yield (
            f"by times alone the best scheme that compresses is {best.scheme}, {best.speedup_vs_dense:.2f}x as fast as "
            f"{baseline}{but}"
        )
    yield why(dense.trial.simulated, best.trial.simulated, ("tuned dense", best.scheme))[0]


def _bound(advice: Advice) -> str:
    dense, alone_s = advice.dense, advice.setting.profile.alone_s()
    exposed = dense.trial.simulated.exposed_comm_s / dense.iteration_s
    most = 1 - alone_s / dense.iteration_s
    hidden = advice.trust is not None and most <= advice.trust.mean
    within = ", which is less than the error of the simulator" if hidden else ""
    return (
        f"tuned dense waits for communication in {exposed:.1%} of its step; a device alone takes {1e3 * alone_s:.1f} "
        f"ms, so nothing can win more than {most:.1%} of the step{within}"
    )


def _pairs(advice: Advice) -> str:
    ranks, density = advice.setting.cluster.world_size, advice.setting.density
    how = "which it is" if density < 1 / ranks else "which it is not"
    return (
        f"gathering pairs of index and value from {ranks} ranks sends fewer bytes than an all-reduce only below "
        f"density 1/{ranks} = {1 / ranks:.3g}; asked for {density:g}, {how}"
    )


def _quality(advice: Advice) -> Iterator[str]:
    yield "a faster step says nothing about convergence"
    assumed = [entry.scheme for entry in advice.entries if _assumes_rows(entry)]
    if assumed:
        yield f"{', '.join(assumed)} assumes how many rows of an embedding table a batch touches (option touched)"
    if names := sorted(entry.scheme for entry in advice.compressing if entry.leaves_tensors_out):
        yield f"one selection covers several tensors, so that nothing may be sent of some, in {', '.join(names)}"


def _borrowed(advice: Advice) -> Iterator[str]:
    if advice.trust and advice.trust.borrowed:
        kind, group = advice.setting.system.origin.kind, advice.trust.group
        yield f"the error bars are borrowed: systems with {group} costs were scored, none with {kind} ones as here"


def _mixed(advice: Advice) -> Iterator[str]:
    if len(advice.codec_kinds) > 1:
        listed = "; ".join(f"{', '.join(names)} {kind}" for kind, names in advice.codec_kinds.items())
        yield f"times of compressors are not of one kind ({listed}): an order between those is not to be relied on"


def _assumes_rows(entry: Entry) -> bool:
    return any(lane.collective.startswith("row_sparse") for _, lane in entry.trial.plan.lanes())
