"""Numbers as people write them in files: 1e-5, which YAML takes for text, "8" in quotes, and 1e6 for a whole number."""

import re
from typing import Any

_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def numeric(value: Any) -> Any:
    """Return the number that a text spells; any other value, and a text that spells none, as it is."""
    if not isinstance(value, str) or not _NUMBER.fullmatch(value.strip()):
        return value
    text = value.strip().replace("_", "")
    return int(text) if re.fullmatch(r"[-+]?[0-9]+", text) else float(text)


def as_number(value: Any) -> str:
    """Return what to write instead of a number with a unit or a comma, as "; write 0.01" for "1%"; "" for no such."""
    found = re.fullmatch(r"([-+]?[0-9]+(?:[.,][0-9]+)?)\s*([a-zA-Z%/]*)", str(value).strip())
    if not found or not isinstance(value, str):
        return ""
    number, unit = float(found[1].replace(",", ".")), found[2]
    number *= {"%": 0.01, "k": 1e3, "K": 1e3, "M": 1e6}.get(unit, 1.0)
    return f"; write {number:.10g}" + (", without its unit" if len(unit) > 1 else "")


def whole(value: Any) -> Any:
    """Return the whole number that a value is, or that it spells: 8 for 8.0, "8" and "0.8e1"; others as they are."""
    found = numeric(value)
    return int(found) if isinstance(found, float) and found.is_integer() else found
