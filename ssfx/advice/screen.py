"""The first screen of a ranking: the answer, three groups of schemes, and what to beware of, in lines of text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from ssfx.advice.alike import alike
from ssfx.advice.answer import SIXTEEN_BIT, Answer, answer_of, listed
from ssfx.advice.checked import where_checked
from ssfx.advice.map_2026 import gbps_per_device, place_on_map
from ssfx.advice.ranked import Entry, Ranking
from ssfx.perf_model.cautions import cautions
from ssfx.perf_model.cluster import Cluster
from ssfx.schemes.search.extra_steps import clipping_matters
from ssfx.schemes.search.recorded_network import batch_text

WIDTH = 100
NEVER_SHARDED = "never on GPUs; sharded steps were timed on ranks of one machine of CPUs alone"
MOST_GBPS = 10.0
"""Line rate for each device at or below which they are named: above it no source has a gain."""
PUBLISHED = (
    "DiLoCo sends 500 times fewer messages, on models of 35 M to 2.4 B parameters (arXiv 2311.08105, 2503.09799); "
    "SparseLoCo 146 times fewer bytes, on 72 B (2603.08163); MuLoCo an eighth of DiLoCo's (2505.23725v1)"
)
_IN = " " * 8
_GROUP = " " * 19


@dataclass(frozen=True)
class ScreenLine:
    """One sentence: `first` stands before its first line, `indent` before the others."""

    text: str
    indent: str = ""
    first: str = ""
    bold: bool = False
    warns: bool = False


def first_screen(advice: Ranking) -> list[ScreenLine]:
    """Return the answer and the groups, each sentence one Line."""
    setting, dense, answer = advice.setting, advice.dense, answer_of(advice)
    batch = f"batch {setting.profile.batch_size} each" + (
        "" if setting.precision == "fp32" else f" in {setting.precision}"
    )
    groups = (("faster", answer.faster), ("indistinguishable", answer.unclear), ("slower", answer.slower))
    sharded = "" if setting.sharding is None else f", {setting.sharding.text}"
    bandwidth, place = answer.bandwidth(setting.gbps), "" if sharded else place_on_map(setting.cluster)
    beware = cautions(setting.profile, setting.cluster)
    checked = NEVER_SHARDED if sharded else where_checked(setting.cluster)
    return [
        ScreenLine(
            f"{setting.profile.model} on {setting.cluster.name}: {setting.cluster.world_size} ranks at "
            f"{setting.cluster.network_text}, {batch}{sharded}, density {setting.density:g} where a "
            f"scheme selects (simulated, {setting.system.origin.kind} times)",
            "  ",
            bold=True,
        ),
        ScreenLine(answer.reason, _IN, f"{'ANSWER':8}{answer.word.capitalize()}. ", bold=True),
        *([ScreenLine(bandwidth, _IN, _IN)] if bandwidth else []),
        *_sixteen_bit(answer, advice),
        *([ScreenLine(f"Alike: {beside}.", _IN, _IN)] if (beside := alike(setting.profile)) else []),
        *_memory(answer, advice),
        ScreenLine(f"Checked: {checked}.{local_updates(setting.cluster)}", _IN, _IN),
        *([ScreenLine(f"Map: {place}.", _IN, _IN)] if place else []),
        *([ScreenLine(f"Exchanges: {setting.cluster.exchange_text}.", _IN, _IN)] if setting.cluster.tables else []),
        ScreenLine(f"How sure: {_how_sure(answer.best or dense)}.", _IN, _IN),
        *([ScreenLine(f"Quality: {_quality(answer.best)}.", _IN, _IN)] if answer.best else []),
        ScreenLine(""),
        ScreenLine(f"{dense.trial.title}, {1e3 * dense.iteration_s:.1f} ms a step", _GROUP, f"{'tuned dense':19}"),
        *(ScreenLine(listed(group), _GROUP, f"{name:19}") for name, group in groups),
        *(
            [ScreenLine(listed(answer.vague), _GROUP, "no place, as times of what sends alike were far off: ")]
            if answer.vague
            else []
        ),
        *_unproven(answer),
        *(ScreenLine(f"beware: {line}", "  ", warns=True) for line in beware),
        *(ScreenLine(f"extrapolated: {line}", "  ", warns=True) for line in advice.extrapolated),
    ]


def as_text(lines: Sequence[ScreenLine]) -> str:
    """Return the lines wrapped at WIDTH characters."""
    return "\n".join(
        textwrap.fill(
            line.text, WIDTH, initial_indent=line.first, subsequent_indent=line.indent, break_on_hyphens=False
        )
        for line in lines
    )


def _memory(answer: Answer, advice: Ranking) -> list[ScreenLine]:
    """Return what tuned dense takes of a device's memory, and the best scheme that compresses."""
    needed = advice.setting.memory(advice.dense.trial)
    if needed is None:
        return []
    best = answer.best and advice.setting.memory(answer.best.trial)
    also = f"; with {answer.best.scheme} {best.said}" if answer.best and best else ""
    return [ScreenLine(f"Memory: {needed.text} with tuned dense{also}.", _IN, _IN)]


def _how_sure(entry: Entry) -> str:
    """Return the error of steps that send like `entry` on this kind of network, or of all, and of how many."""
    trust = entry.trust
    if trust is None:
        return f"unknown: the simulator was never checked against times of {entry.scheme}, or of what sends alike"
    return trust.said + ("; nominal costs were never checked" if trust.borrowed else "")


def _quality(best: Entry) -> str:
    found = best.needed
    ask = "; say clip_norm=1 if training clips gradients" if clipping_matters(best.network) else ""
    if not found.runs:
        return f"what {best.scheme} sends counts as dense: {found.source}{ask}"
    batch = (best.network.batch or 0) * best.trial.plan.world_size
    here = f"; a step here has {batch_text(best.network.family, batch)}" if batch else ""
    return f"what {best.scheme} sends needs {found}{here}{ask}"


def _unproven(answer: Answer) -> list[ScreenLine]:
    unchecked, worse = (
        [one for one in answer.unproven if (one.more_steps is None) is worse] for worse in (False, True)
    )
    said = "faster by these times, "
    return [
        *(
            [ScreenLine(listed(unchecked), _GROUP, said + "which were never checked for what sends alike: ")]
            if unchecked
            else []
        ),
        *(
            [
                ScreenLine(
                    f"{listed(worse)}; {worse[0].scheme}: {worse[0].needed}",
                    _GROUP,
                    said + "quality unknown or worse: ",
                )
            ]
            if worse
            else []
        ),
    ]


def _sixteen_bit(answer: Answer, advice: Ranking) -> list[ScreenLine]:
    """Return what sending dense gradients in 16 bits gives, which costs no accuracy to speak of: the other baseline."""
    half = next((one for one in advice.entries if one.scheme == SIXTEEN_BIT), None)
    if half is None or half is answer.best:
        return []
    return [
        ScreenLine(f"Dense gradients in 16 bit ({SIXTEEN_BIT}) give {half.speedup_vs_dense:.2f}x of dense.", _IN, _IN)
    ]


def local_updates(cluster: Cluster) -> str:
    """Return what follows on methods of local updates, for a cluster with slow links between nodes; "" for another.

    The numbers are their authors'. It is no recommendation: nothing here runs such a method, nor knows its time.
    """
    if cluster.nodes == 1 or gbps_per_device(cluster) > MOST_GBPS:
        return ""
    return (
        f" Not compared: methods that exchange weights after many steps. As published, {PUBLISHED}. "
        "ssfx neither runs nor prices them."
    )
