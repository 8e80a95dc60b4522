"""`iteration_ms=253`: the measured time of an iteration on one device, which a profile is scaled to.

`cluster_iteration_ms=900` is that of a step on all devices, which tells the bandwidth that they have.
"""

import math
from collections.abc import Iterable

from ssfx.core.errors import ConfigError
from ssfx.core.numbers import as_number
from ssfx.core.plausible import plausible

KEY = "iteration_ms"
ON_ALL = "cluster_iteration_ms"


def split_words(words: Iterable[str], name: str = KEY) -> tuple[list[str], float | None]:
    """Return `words` without `iteration_ms=...`, and its value; ConfigError for one that is no time above zero."""
    others, found = [], None
    for word in words:
        key, equals, text = word.partition("=")
        if key != name or not equals:
            others.append(word)
            continue
        if found is not None:
            raise ConfigError(f"{name} is given twice; keep one of them")
        found = _milliseconds(text, name)
    return others, found


def timed_model(model: str, iteration_ms: float | None) -> str:
    """Return the model as it is named where its iteration time was given: "resnet50(iteration_ms=253)"."""
    return model if iteration_ms is None else f"{model}({KEY}={iteration_ms:g})"


def _milliseconds(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        how = (as_number(text, KEY).removeprefix("; write ") if math.isnan(value) else "") or "253"
        raise ConfigError(
            f"{name}={text} is no iteration time; write the milliseconds of a step on "
            f"{'one device' if name == KEY else 'all devices'}, for example {name}={how}"
        )
    plausible(KEY, value)
    return value
