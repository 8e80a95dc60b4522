"""Why a plan of `auto` is what it is, in words: what buckets do, and what they would cost otherwise."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Lane, Plan, TensorSpec, launch_in_order
from ssfx.planning.profile import Profile
from ssfx.schemes.base import schemes
from ssfx.schemes.make_plan import check_capabilities
from ssfx.schemes.search.auto_budget import DENSE, HALF, Budget
from ssfx.schemes.search.auto_methods import Kind, Method
from ssfx.schemes.search.recorded_network import Network
from ssfx.simulator.pricing.message_sizes import lane_bytes
from ssfx.simulator.pricing.timeline import StepPrices, evaluate

WIDTH = 84
"""Columns of the timeline."""
_SIGNS = "123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Stretch:
    """Buckets that are sent alike, and what is known of them.

    words: how they are sent. later: by other methods, in words, how much later the step would end, the least first.
    """

    buckets: tuple[int, ...]
    words: str
    tensors: int
    share: float
    nbytes: int
    exchange_s: float
    exposed_s: float
    later: tuple[tuple[str, float], ...]


def why_lines(
    model: str, cluster: str, plan: Plan, profile: Profile, costs: Costs, given: Mapping[str, Any]
) -> list[str]:
    """Return in lines of 100 columns why a plan of auto with options `given` is what it is; the first is a title."""
    notes, options = dict(plan.notes), schemes["auto"].options(dict(given))
    budget = options.budget(costs, Network.of(profile, costs.world_size))  # type: ignore[attr-defined]
    title = (
        f"auto for {model} on {cluster}, {plan.world_size} ranks: {notes['predicted_ms']} ms from the start of "
        f"backward, {1e3 * profile.backward_s:.4g} ms of which are backward"
    )
    found = explained(stretches(plan, profile, costs, budget))
    left_out = [f"not used: {text}" for key, text in plan.notes if key == "not used"]
    first = [f"budget: {notes['budget']}", f"chosen: {notes['chosen']}"]
    lines = [title]
    for text in (*first, *found):
        indent = " " * (len(text) - len(text.lstrip()) + 4)
        lines += textwrap.wrap(text, 100, subsequent_indent=indent, break_on_hyphens=False)
    lines += drawn(plan, profile, costs)
    for text in left_out:
        lines += textwrap.wrap(text, 100, subsequent_indent=" " * 4, break_on_hyphens=False)
    return lines


def stretches(plan: Plan, profile: Profile, costs: Costs, allowed: Budget) -> list[Stretch]:
    """Return the stretches of a plan, with what every other kind of the budget would cost in each.

    Exchanges take their share of the device in these differences, as when the plan was chosen.
    """
    known = StepPrices(profile, costs)
    line = known.timeline(plan)
    spans: dict[int, list[int]] = {}
    for index, (bucket, _) in enumerate(plan.launch_order):
        spans.setdefault(bucket, []).append(index)
    total = sum(profile.numel)
    found = []
    words = [
        ", ".join(dict.fromkeys(_lane_words(lane, allowed.kinds) for lane in bucket.lanes)) for bucket in plan.buckets
    ]
    ends_s = known.disturbed_s(plan)
    for text in dict.fromkeys(words):
        numbers = [number for number, one in enumerate(words) if one == text]
        lanes = [lane for number in numbers for lane in plan.buckets[number].lanes]
        own = [line.lanes[index] for number in numbers for index in spans.get(number, ())]
        names = [name for lane in lanes for name in lane.tensors]
        found.append(
            Stretch(
                tuple(numbers),
                text,
                len(names),
                sum(plan.numel(lane) for lane in lanes) / max(1, total),
                sum(lane_bytes(plan, lane) for lane in lanes),
                sum(one.end_s - one.start_s for one in own),
                sum(max(0.0, one.end_s - max(one.start_s, line.backward_end_s)) for one in own),
                _otherwise(plan, allowed, numbers, text, ends_s, known),
            )
        )
    return found


def _otherwise(
    plan: Plan, allowed: Budget, numbers: Sequence[int], words: str, ends_s: float, known: StepPrices
) -> tuple[tuple[str, float], ...]:
    found: dict[str, float] = {}
    for kind in dict.fromkeys((DENSE, HALF, *allowed.kinds)):
        if kind.words == words or kind not in allowed.kinds or "inside nodes" in kind.words:
            continue
        buckets = list(plan.buckets)
        for number in numbers:
            names = {name for lane in plan.buckets[number].lanes for name in lane.tensors}
            tensors: list[TensorSpec] = [spec for spec in plan.tensors if spec.name in names]
            buckets[number] = Method(kind).bucket(tensors)
        made = tuple(buckets)
        other = replace(plan, buckets=made, launch_order=launch_in_order(made, plan.tensors), notes=())
        try:
            check_capabilities(other)
            found[kind.words] = known.disturbed_s(other) - ends_s
        except ConfigError:
            continue
    return tuple(sorted(found.items(), key=lambda one: one[1]))


def _lane_words(lane: Lane, kinds: Sequence[Kind]) -> str:
    specs = {segment.compressor for segment in lane.segments}
    plain = " with small tensors dense" if len(specs) > 1 and None in specs else ""
    compressor = next((spec for spec in sorted(specs, key=str) if spec is not None), None)
    host = ", part of it on the host" if any(one.placement == "host" for one in lane.segments) else ""
    for kind in kinds:
        joint = len(lane.segments) > 1 or kind.calls != "joint" or len(lane.segments[0].tensors) == 1
        if (kind.collective, kind.compressor) == (lane.collective, compressor) and (joint or kind.calls == "joint"):
            return f"{kind.words}{plain}{host}"
    return f"{compressor or 'dense'} by {lane.collective}{plain}{host}"


def explained(found: Sequence[Stretch]) -> list[str]:
    """Return one sentence for each stretch, and one for what it would cost otherwise."""
    lines = []
    for one in found:
        which = f"bucket{'s' if len(one.buckets) > 1 else ''} {_ranges(one.buckets)}"
        hidden = "all of it hidden under backward" if one.exposed_s < 1e-6 else f"{_ms(one.exposed_s)} after backward"
        lines.append(
            f"{which}: {one.words}; {one.tensors} tensors, {one.share:.1%} of the elements, {one.nbytes:,} bytes; "
            f"{_ms(one.exchange_s)} on the network, {hidden}"
        )
        if one.later:
            named = ", ".join(f"{words} {_signed(more_s)}" for words, more_s in one.later[:3])
            dense = next((more for words, more in one.later if words == HALF.words), None)
            if dense is not None and HALF.words not in [words for words, _ in one.later[:3]]:
                named += f", {HALF.words} {_signed(dense)}"
            lines.append(f"    the end of the step otherwise: {named}")
    return lines


def _ranges(numbers: Sequence[int]) -> str:
    """Return numbers from 1 on as text, those that follow one another together."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0] + 1}" if len(run) == 1 else f"{run[0] + 1} to {run[-1] + 1}" for run in runs)


def drawn(plan: Plan, profile: Profile, costs: Costs) -> list[str]:
    """Return the step from the start of backward as text: backward and compression, and what is on the network when.

    A message is drawn as the number of its bucket.
    """
    line = evaluate(plan, profile, costs)
    column_s = line.total_s / WIDTH
    network = [" "] * WIDTH
    for (bucket, _), one in zip(plan.launch_order, line.lanes, strict=True):
        start, end = int(one.start_s / column_s), max(int(one.start_s / column_s) + 1, round(one.end_s / column_s))
        for at in range(min(start, WIDTH - 1), min(end, WIDTH)):
            network[at] = _SIGNS[bucket % len(_SIGNS)]
    device = "=" * round(line.backward_end_s / column_s)
    decoding = "+" * max(0, round((line.total_s - max(line.backward_end_s, line.lanes[-1].end_s)) / column_s))
    end = WIDTH - len(decoding)
    return [
        f"device  |{device.ljust(end)[:end]}{decoding}|",
        f"network |{''.join(network)}|",
        f"{'':8} = backward with compression, + decoding, 1 to z a bucket's message; a column is {_ms(column_s)}",
    ]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms"


def _signed(seconds: float) -> str:
    return f"{1e3 * seconds:+.2f} ms"
