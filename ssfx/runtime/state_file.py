"""What a rank saved of its state, read from its file without running anything that is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ssfx.core.errors import RunError

_LONGEST = 150
"""Characters of a reason that a line repeats."""


def read_state(path: Path) -> dict[str, Any]:
    """Return what a rank saved of its state, on the CPU; RunError in one line with the path for any other file.

    Nothing in the file is executed.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:  # of zipfile, pickle, torch or C++, as the damage is
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:_LONGEST]
        raise RunError(f"{path} is damaged, or no state that ssfx saved ({reason}); use an earlier one") from None
    if not isinstance(state, dict):
        raise RunError(f"{path} is no state that ssfx saved, but {type(state).__name__}; use an earlier one")
    return state
