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


_COUNTS = {"%": 0.01, "k": 1e3, "K": 1e3, "M": 1e6}
_SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_GBPS = {
    f"{letter}{unit}": factor * bits
    for letter, factor in (("T", 1e3), ("G", 1.0), ("M", 1e-3))
    for bits, units in ((1.0, ("bit/s", "b/s", "bps", "bit", "")), (8.0, ("B/s", "Bps", "B", "iB/s")))
    for unit in units
}


def _factors(key: str) -> dict[str, float]:
    """Return what units that people write behind a number are, in the unit that the name of `key` ends in."""
    per_s = {"_s": 1.0, "_ms": 1e3, "_us": 1e6}.get(key[key.rfind("_") :] if "_" in key else "")
    if per_s:
        return {unit: seconds * per_s for unit, seconds in _SECONDS.items()}
    return _GBPS if key.endswith("gbps") else _COUNTS


def as_number(value: Any, key: str = "") -> str:
    """Return what to write instead of a number with a unit or a comma, as "; write 0.01" for "1%"; "" for no such.

    It is in the unit of `key`, whose name ends in it: gbps, _s, _ms or _us.
    """
    found = re.fullmatch(
        r"([-+]?(?:[0-9]+(?:[.,][0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*([a-zA-Z%/]*)", str(value).strip()
    )
    if not isinstance(value, str):
        return ""
    if share := re.fullmatch(rf"([0-9]+)[/{':' if key == 'density' else ''}]([1-9][0-9]*)", value):
        return f"; write {int(share[1]) / int(share[2]):.10g}"
    if several := re.fullmatch(r"([0-9.]+?)\s*(?:\.\.|-|:|to)\s*([0-9.]+)", value):
        return f"; for several write {several[1]},{several[2]} with what is between"
    if not found:
        return ""
    number, unit = float(found[1].replace(",", ".")), found[2]
    number = 1 / number if (key, unit) == ("density", "x") and number > 1 else number * _factors(key).get(unit, 1.0)
    return f"; write {number:.10g}" + (", without its unit" if len(unit) > 1 else "")


def gbps_of(text: str) -> float:
    """Return the Gbit/s that a rate is as people write it, as 12.5GB/s or 100gbe; a bare number as it is, others 0."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?(?:[eE][0-9]+)?)[ -]?([a-zA-Z/]*)", text)
    units = {"": 1.0, **{unit.lower(): factor for unit, factor in _GBPS.items() if "B" not in unit}, **_GBPS}
    units |= {"gbe": 1.0, "ge": 1.0, "gbits": 1.0, "gbit/s": 1.0, "mbits": 1e-3, "gb": 1.0, "mb": 1e-3}
    return numeric(found[1]) * units.get(found[2], units.get(found[2].lower(), 0.0)) if found else 0.0


def whole(value: Any) -> Any:
    """Return the whole number that a value is, or that it spells: 8 for 8.0, "8" and "0.8e1"; others as they are."""
    found = numeric(value)
    return int(found) if isinstance(found, float) and found.is_integer() else found


def rounded(value: float, digits: int) -> str:
    """Return a number rounded to so many digits, as people write it: "37,910", no "3.791e+04"."""
    text = f"{value:.{digits}g}"
    return f"{float(text):,.0f}" if "e+" in text else text
