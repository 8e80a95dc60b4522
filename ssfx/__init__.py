"""ssfx: does compressed, fused gradient communication help this model on this cluster, and which scheme is best?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ssfx.core.plugins import open_door

if TYPE_CHECKING:
    from ssfx.advice import Advice as Advice
    from ssfx.config.advice_question import advise_on
    from ssfx.runtime.attach import attach
    from ssfx.runtime.sync import Sync
    from ssfx.runtime.virtual_ranks import share_weights, virtual_ranks

__version__ = "0.2.0"
__all__ = ["Sync", "__version__", "advise_on", "attach", "share_weights", "virtual_ranks"]


def __getattr__(name: str) -> Any:
    # The runtime needs torch; the vocabulary does not. Importing it on first use keeps `import ssfx` torch-free.
    if name in ("attach", "Sync"):
        from ssfx.runtime import attach

        return getattr(attach, name)
    if name == "share_weights":
        from ssfx.runtime.virtual_ranks import share_weights

        return share_weights
    if name == "virtual_ranks":
        from ssfx.runtime.virtual_ranks import virtual_ranks

        return virtual_ranks
    if name == "advise_on":
        from ssfx.config.advice_question import advise_on

        return advise_on
    if name in ("wrap", "Attach", "DDP", "DistributedDataParallel", "prepare", "advise", "run"):
        meant = {"advise": "ssfx.advise_on(profile, cluster)", "run": "ssfx run, a command"}
        raise AttributeError(
            f"module 'ssfx' has no attribute {name!r}: it is {meant.get(name, 'ssfx.attach(model, optimizer)')}"
        )
    raise AttributeError(f"module 'ssfx' has no attribute {name!r}")


open_door(__getattr__)
