"""A table to play with: the step of each method by part, over bandwidths and passes before an exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ssfx.advice.answer import ROUNDS
from ssfx.advice.published import local_updates, published_of
from ssfx.advice.ranked import Entry, Ranking
from ssfx.advice.screen import words
from ssfx.advice.setting import Setting, Trial
from ssfx.core.errors import ConfigError
from ssfx.core.progress import doing
from ssfx.schemes import schemes
from ssfx.simulator import Simulated

PER_DECADE = 6
RATES_GBPS = tuple(round(10 ** (step / PER_DECADE), 3) for step in range(-PER_DECADE, 3 * PER_DECADE + 3))
"""Where steps are simulated, 0.1 to 3162 Gbit/s; the setting's own rate comes beside them."""
WORDS = ("dense", "recorded", "published", "unknown", "worse")
"""What is known of the quality of a method: it is that of dense training; recorded runs hold here; others published
runs of this kind alone; nothing; recorded runs that hold here need more steps than an answer allows."""
EACH = 3
"""So many of the fastest methods of each word are shown beside those that answers name."""
USUAL = ("ddp_fp16", "hierarchical_fp16", "ddp_quantized", "ddp_4bit", "auto")
"""Methods that are shown in any case, where they can be planned."""


def parts_of(step: Simulated) -> dict[str, float]:
    """Return the seconds of each part of a simulated step; their sum is the step."""
    seconds = {name: value or 0.0 for name, value in step.metrics(1).items()}
    exposed, compression = seconds["exposed_comm_s"], seconds["sparsify_s"]
    compute = max(0.0, seconds["iteration_s"] - exposed - compression)
    return {"compute": compute, "compression": compression, "exposed exchange": exposed}


def table_of(advice: Ranking) -> dict[str, Any]:
    """Return what JSON can hold: by method the parts of a step at each rate, in seconds, and what is known of it.

    `first` is a step of a single pass before its exchange, `further` what each further pass adds: steps are linear in
    passes. `alone` has the same two numbers of a device that exchanges nothing.
    """
    setting = replace(advice.setting, accumulate=1)
    own = setting.gbps
    rates = sorted({own, *(rate for rate in RATES_GBPS if not 0.97 < rate / own < 1.03)})
    profile, cluster = setting.profile, setting.cluster
    first_s = profile.alone_s(1)
    methods = list(methods_of(advice))
    found = [{"label": label, "kind": kind, "words": [], "first": [], "further": []} for label, kind, _ in methods]
    with doing(f"simulating {len(found)} methods at {len(rates)} rates on {cluster.world_size} ranks"):
        for rate in rates:
            at = setting.at(rate)
            for method, (*_, tried) in zip(found, methods, strict=True):
                _add(method, at, tried)
    return {
        "title": f"{profile.model} on {cluster.nodes} x {cluster.devices_per_node} {cluster.device}, {cluster.name}",
        "network": cluster.network_text,
        "ranks": cluster.world_size,
        "unit": "ranks" if cluster.device == "cpu" else "GPUs",
        "device": cluster.device,
        "batch": profile.batch_size,
        "accumulate": advice.setting.accumulate,
        "gbps": own,
        "rates": rates,
        "alone": [_short(first_s), _short(profile.alone_s(2) - first_s)],
        "methods": found,
    }


def methods_of(advice: Ranking) -> Iterator[tuple[str, str, Callable[[Setting], Trial]]]:
    """Yield (label, kind, how it is tried) of what is shown: torch's DDP, tuned dense, and others.

    The kind is "unchecked" where no time of such a step was ever scored: an answer names no such method.
    """
    yield f"torch's {'sharding' if advice.setting.sharding else 'DDP'}", "now", Setting.as_it_comes
    yield "tuned dense", "tuned", _best(*(one.scheme for one in advice.entries if one.trial.tuned))
    counts = [0] * len(WORDS)
    for one in advice.entries:
        counts[_word(one)] += 1
        if one.compressors and (counts[_word(one)] <= EACH or one.name in USUAL):
            yield words(one).partition(" (")[0], "" if one.trust else "unchecked", _best(one.name)
    if advice.setting.sharding is None:
        yield f"{ROUNDS}, on average", "", _best(ROUNDS)


def _best(*names: str) -> Callable[[Setting], Trial]:
    return lambda at: min((at.best(name) for name in names), key=lambda one: one.iteration_s)


def _add(method: dict[str, Any], at: Setting, tried: Callable[[Setting], Trial]) -> None:
    """Add one rate to a method; None where it cannot be planned there."""
    try:
        trial = tried(at)
    except ConfigError:
        for column in ("words", "first", "further"):
            method[column].append(None)
        return
    one, two = (list(parts_of(step).values()) for step in (trial.simulated, at.accumulated(trial, 2)))
    method["words"].append(_word(Entry(trial, at, trial.iteration_s)))
    method["first"].append([_short(value) for value in one])
    method["further"].append([_short(after - before) for before, after in zip(one, two, strict=True)])


def _word(one: Entry) -> int:
    """Return which of WORDS holds for a method here."""
    setting = one.setting
    if schemes[one.scheme].in_rounds:
        return 2 if local_updates(setting.network, setting.cluster.world_size) else 3
    if not one.compressors:
        return 0
    if one.more_steps is not None:
        return 1
    if published_of(one.trial.plan, setting.network, fine_tuning=setting.fine_tuning):
        return 2
    return 3 if one.needed.share is None else 4


def _short(value: float) -> float:
    return float(f"{value:.6g}")
