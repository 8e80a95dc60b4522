"""make_plan: the one way from a scheme's name to a Plan, with every declared capability checked."""

from __future__ import annotations

from typing import Any

from ssfx.collectives import collectives
from ssfx.compressors import build
from ssfx.costs import Costs
from ssfx.errors import ConfigError
from ssfx.plan import Plan
from ssfx.profile import Profile
from ssfx.schemes import schemes


def make_plan(scheme: str, profile: Profile, costs: Costs, options: dict[str, Any] | None = None) -> Plan:
    """Return the plan of `scheme`; ConfigError when the options or the combination of components cannot work."""
    entry = schemes[scheme]
    plan = entry.planner(profile, costs, entry.options(options or {}))
    check_capabilities(plan)
    return plan


def check_capabilities(plan: Plan) -> None:
    """Raise ConfigError when a lane's collective cannot carry what its compressors produce."""
    for bucket in plan.buckets:
        for lane in bucket.lanes:
            collective = collectives[lane.collective]
            for segment in lane.segments:
                if segment.compressor is None:
                    continue
                compressor = build(segment.compressor)
                if collective.additive_only and not compressor.additive:
                    raise ConfigError(
                        f"scheme={plan.scheme} with compressor={compressor.name}: {collective.name} adds payloads on the "
                        f"way, which {compressor.name} payloads do not allow; use all_gather, or compressor=fp16"
                    )
            if collective.additive_only and len({s.compressor for s in lane.segments}) > 1:
                raise ConfigError(f"scheme={plan.scheme}: one {collective.name} cannot mix {lane.segments}")
