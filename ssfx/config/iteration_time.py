"""`iteration_ms=253`: the measured time of an iteration on one device, which a profile is scaled to."""

import math
from collections.abc import Iterable

from ssfx.core.errors import ConfigError
from ssfx.core.numbers import as_number
from ssfx.core.plausible import plausible

KEY = "iteration_ms"


def split_words(words: Iterable[str]) -> tuple[list[str], float | None]:
    """Return `words` without `iteration_ms=...`, and its value; ConfigError for one that is no time above zero."""
    others, found = [], None
    for word in words:
        key, equals, text = word.partition("=")
        if key != KEY or not equals:
            others.append(word)
            continue
        if found is not None:
            raise ConfigError(f"{KEY} is given twice; keep one of them")
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not (math.isfinite(found) and found > 0):
            how = (as_number(text, KEY).removeprefix("; write ") if math.isnan(found) else "") or "253"
            raise ConfigError(
                f"{KEY}={text} is no iteration time; write the milliseconds of a step on one device, for example "
                f"{KEY}={how}"
            )
        plausible(KEY, found)
    return others, found


def timed_model(model: str, iteration_ms: float | None) -> str:
    """Return the model as it is named where its iteration time was given: "resnet50(iteration_ms=253)"."""
    return model if iteration_ms is None else f"{model}({KEY}={iteration_ms:g})"
