"""Files of an exchange's state next to a trainer's checkpoint: one a rank, whole or absent."""

from pathlib import Path

import torch
import torch.distributed as dist

from ssfx.core.errors import ConfigError, SsfxError
from ssfx.core.files import replacing
from ssfx.runtime.outer import OuterSync
from ssfx.runtime.store import read_state
from ssfx.runtime.sync import Sync
from ssfx.sharded.sync import ShardedSync


def state_file(checkpoint: str | Path, rank: int) -> Path:
    """Return the file of one rank: inside a checkpoint that is a folder, beside one that is a file."""
    path = Path(checkpoint)
    return path / f"ssfx-rank{rank}.pt" if path.is_dir() else path.with_name(f"{path.name}.ssfx-rank{rank}.pt")


def save_state(sync: Sync | ShardedSync | OuterSync, checkpoint: str | Path) -> Path:
    """Write this rank's state beside `checkpoint` and return its path; a reader never sees half a file."""
    path = state_file(checkpoint, _rank(sync))
    with replacing(path, "wb") as file:
        torch.save(sync.state_dict(), file)
    return path


def load_state(sync: Sync | ShardedSync | OuterSync, checkpoint: str | Path) -> None:
    """Continue from the state beside `checkpoint`; ConfigError when this rank has none, RunError for another file."""
    path = state_file(checkpoint, _rank(sync))
    if not path.exists():
        raise ConfigError(
            f"{path} is not there, so residuals would start from nothing; resume from a checkpoint that was written "
            "with ssfx attached, by as many ranks"
        )
    state = read_state(path)
    try:
        sync.load_state_dict(state)
    except SsfxError as error:
        raise type(error)(f"{path}: {error}") from None


def _rank(sync: Sync | ShardedSync | OuterSync) -> int:
    """Return the number that this rank's file has: its place among the replicas of a shard would not be unique."""
    return sync.comm.rank if isinstance(sync, Sync) else dist.get_rank()
