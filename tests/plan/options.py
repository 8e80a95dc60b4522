"""Options with which any registered scheme can be tried: a compressor it takes, a density where that has an effect."""

from typing import Any

from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile
from ssfx.schemes import CompressOptions, schemes
from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.transport import keeps_fraction


def usual(scheme: str, density: float = 0.01) -> dict[str, Any]:
    """Return {} for dense schemes; topk where any selecting compressor will do, else the scheme's own."""
    entry = schemes[scheme]
    if not isinstance(entry.defaults, CompressOptions) and not entry.chooses:
        return {}
    chosen: dict[str, Any] = {}
    if entry.compressors in ("any", "selecting"):
        chosen["compressor"] = "topk"
    if keeps_fraction(chosen.get("compressor") or entry.defaults.compressor):
        chosen["density"] = density
    return chosen


def keeps_all(scheme: str) -> dict[str, Any] | None:
    """Return options under which nothing is left out and the result is the dense average, None if there are none."""
    entry = schemes[scheme]
    if entry.compressor in ("fp16", "bf16"):  # they round every element
        return None
    if entry.dense:
        return {}
    chosen = usual(scheme, 1.0)
    return chosen if "density" in chosen else None


def paper_plan(scheme: str, profile: Profile, costs: Costs, options: dict[str, Any] | None = None) -> Plan:
    """Return the plan of the rule that the scheme's paper prints, where it has another one by default."""
    given = dict(options or {})
    if hasattr(schemes[scheme].defaults, "rule"):
        given.setdefault("rule", "paper")
    return make_plan(scheme, profile, costs, given)
