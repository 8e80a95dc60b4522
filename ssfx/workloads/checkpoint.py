"""Checkpoints that are either complete and verified or ignored.

A checkpoint is a directory `step-<n>/` with one file a rank and, written last by rank 0, `COMPLETE`, which holds the
SHA-256 of every file. A crash at any moment leaves the previous checkpoint as it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import torch
import torch.distributed as dist

from ssfx.core.errors import ConfigError, RunError
from ssfx.core.files import write_atomic

KEEP = 2
_COMPLETE = "COMPLETE"


@dataclass(frozen=True)
class Loaded:
    """A rank's state after `step` finished steps, None at the start, and which checkpoints were passed over."""

    step: int
    state: dict[str, Any] | None
    skipped: tuple[str, ...]


class Checkpoints:
    """The checkpoints of one run, as one of its ranks sees them. All ranks call each method together.

    `identity` says which run and data the states belong to; another identity or world size is refused. `group` is a
    process group on the CPU (None: this process is the only rank).
    """

    def __init__(
        self, directory: Path, identity: Mapping[str, str], *, rank: int = 0, world_size: int = 1, group: Any = None
    ) -> None:
        self.directory = directory
        self._identity = dict(identity)
        self._rank = rank
        self._world_size = world_size
        self._group = group

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Keep `state` as the checkpoint after `step` finished steps, then delete all but the last two.

        Raises RunError when the files cannot be written; the earlier checkpoints are still there then.
        """
        folder = self.directory / f"step-{step}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            digest = _write_state(folder / f"rank{self._rank}.pt", state)
            digests = self._gather(digest)  # every rank's file is durable when this returns
            if self._rank == 0:
                seal = {"identity": self._identity, "world_size": self._world_size, "sha256": digests}
                write_atomic(folder / _COMPLETE, json.dumps(seal))
                self._prune()
        except OSError as error:
            raise RunError(f"checkpoint {folder} cannot be written: {error.strerror or error}") from error

    def load(self) -> Loaded:
        """Return this rank's state from the newest checkpoint that is complete and whose checksums match.

        Raises ConfigError on all ranks when that checkpoint belongs to another run, data or world size.
        """
        found = self._agree(self._newest() if self._rank == 0 else None)
        step, skipped, refusal = found
        if refusal:
            raise ConfigError(refusal)
        if step is None:
            return Loaded(0, None, skipped)
        path = self.directory / f"step-{step}" / f"rank{self._rank}.pt"
        state = torch.load(path, map_location="cpu", weights_only=True)
        return Loaded(step, state, skipped)

    def _newest(self) -> tuple[int | None, tuple[str, ...], str]:
        skipped: list[str] = []
        for step, folder in reversed(self._folders()):
            try:
                seal = json.loads((folder / _COMPLETE).read_text())
                refusal = self._refusal(folder, seal)
                if not refusal:
                    _verify(folder, seal["sha256"])
            except FileNotFoundError as error:
                skipped.append(f"checkpoint {folder.name} skipped: {Path(error.filename).name} is missing")
            except (ValueError, KeyError, TypeError) as error:
                skipped.append(f"checkpoint {folder.name} skipped: {error}")
            else:
                return step, tuple(skipped), refusal
        return None, tuple(skipped), ""

    def _refusal(self, folder: Path, seal: Mapping[str, Any]) -> str:
        if seal["world_size"] != self._world_size:
            return (
                f"checkpoint {folder} was written by {seal['world_size']} ranks and holds one residual a rank, so "
                f"{self._world_size} ranks cannot resume it; use world_size={seal['world_size']} or another directory"
            )
        for key, value in self._identity.items():
            if seal["identity"].get(key) != value:
                return (
                    f"checkpoint {folder} belongs to {key} {seal['identity'].get(key)}, this run has {value}; "
                    "delete the checkpoint to start anew"
                )
        return ""

    def _folders(self) -> list[tuple[int, Path]]:
        found = [(f.name.removeprefix("step-"), f) for f in self.directory.glob("step-*")]
        return sorted((int(number), folder) for number, folder in found if number.isdigit())

    def _prune(self) -> None:
        complete = [step for step, folder in self._folders() if (folder / _COMPLETE).exists()]
        for step, folder in self._folders():
            if step < complete[-KEEP:][0]:
                (folder / _COMPLETE).unlink(missing_ok=True)  # first, so that what is left never looks complete
                shutil.rmtree(folder)

    def _gather(self, digest: str) -> list[str]:
        digests = [digest] * self._world_size
        if self._group is not None:
            dist.all_gather_object(digests, digest, group=self._group)
        return digests

    def _agree(self, found: Any) -> Any:
        box = [found]
        if self._group is not None:
            dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]


class _Target:
    """A binary file for torch.save, which turns what the system says of a write into a RuntimeError of its own."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._file.flush()


def _write_state(path: Path, state: Mapping[str, Any]) -> str:
    """Write `state` durably to `path` and return the SHA-256 of the file; after an OSError nothing is left of it."""
    temporary = path.with_suffix(".tmp")
    try:
        with temporary.open("w+b") as file:
            target = _Target(file)
            try:
                torch.save(dict(state), cast(IO[bytes], target))
            except RuntimeError:
                if target.error is not None:
                    raise target.error from None
                raise
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()  # so that a full disk gets its room back
        raise
    return digest


def _verify(folder: Path, digests: list[str]) -> None:
    for rank, expected in enumerate(digests):
        path = folder / f"rank{rank}.pt"
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                raise ValueError(f"the checksum of {path.name} does not match")
