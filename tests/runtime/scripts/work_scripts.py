"""What the pool's ranks run: one script, with one scheme."""

from typing import Any

import torch
from runtime.scripts import adversarial, averages, freezing, loops, losses, passes, precision  # noqa: F401
from runtime.scripts.harness import SCRIPTS, Options, Run

_ends: dict[tuple[str, int], torch.Tensor] = {}
"""Where a script ends with torch DDP, by its name and the number of ranks."""


def with_ssfx(group: Any, rank: int, world: int, name: str, options: Options, beside_ddp: bool) -> dict[str, Any]:
    """Run a script with ssfx, and beside it once with torch DDP; return what there is to say of both."""
    run = Run(group, rank, world, options)
    SCRIPTS[name](run)
    violation, kept, used = run.mass()
    report: dict[str, Any] = {
        "agree": run.ranks_agree(),
        "finite": bool(torch.isfinite(run.weights()).all()),
        "violation": violation,
        "kept": kept,
        "used": used,
    }
    run.detach()
    if beside_ddp:
        if (name, world) not in _ends:
            other = Run(group, rank, world, None)
            SCRIPTS[name](other)
            _ends[name, world] = other.weights()
        end = _ends[name, world]
        report["same bits"] = torch.equal(run.weights(), end)
        report["distance"] = float((run.weights() - end).abs().max())
    return report
