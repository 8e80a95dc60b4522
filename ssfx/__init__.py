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
    if name.startswith("__"):
        raise AttributeError(f"module 'ssfx' has no attribute {name!r}")
    meant = {
        "advise": "it is ssfx.advise_on(profile, cluster)",
        "detach": "it is sync.detach(), of what attach returned",
        **dict.fromkeys(
            ("wrap", "Attach", "DDP", "DistributedDataParallel", "prepare"), "it is ssfx.attach(model, optimizer)"
        ),
        **dict.fromkeys(("run", "simulate", "plan", "profile", "doctor", "figures"), f"it is ssfx {name}, a command"),
    }
    what = meant.get(name, f'it has {", ".join(__all__)}; a component is named by text, as scheme="topk"')
    raise AttributeError(f"module 'ssfx' has no attribute {name!r}: {what}")


open_door(__getattr__)
