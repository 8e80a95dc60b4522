"""Which numbers of the papers each calibration was made from; no claim about them is held against its own simulations.

The scripts that fit a calibration may read no other claim, and the judges of simulated rows skip what is listed here.
"""

from collections.abc import Mapping

from experiments.common.claims.ledger import PaperClaim

INPUTS: Mapping[str, tuple[str, ...]] = {
    "fitted": ("ssfusion.fig2", "ssfusion.fig4", "ssfusion.fig5", "ssfusion.fig9", "ssfusion.table3"),
    "published": (
        "ssfusion.table3", "acpsgd.iv.ar", "mergecomp.budget", "mergecomp.fig3", "s2reducer.appB1",
    ),
}  # fmt: skip
"""By calibration, artifacts of the ledger and beginnings of claims' ids.

All claims about an artifact count as used, also those that the fit does not read: they follow from those it reads.
"""
USED = "this number was used to fit"


def used_by(calibration: str, claim: PaperClaim) -> bool:
    """True when simulations of `calibration` rest on the claim, or on another number of the same artifact."""
    given = INPUTS.get(calibration, ())
    return claim.artifact in given or any(f"{claim.id}.".startswith(f"{name}.") for name in given)
