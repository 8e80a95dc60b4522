"""Checkpoints that are either complete and verified or ignored.

A checkpoint is a directory `step-<n>/` with one file a rank and, written last by rank 0, `COMPLETE`, which holds the
SHA-256 of every file. A crash at any moment leaves the previous checkpoint as it was.
"""

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch.utils._pytree import tree_leaves

from ssfx.collectives.comm import Comm
from ssfx.core.errors import ConfigError, RunError
from ssfx.core.files import (
    DAMAGED,
    free_bytes,
    loads,
    megabytes,
    numbered,
    of_writing,
    own_folder,
    replacing,
    write_json,
)
from ssfx.runtime.store import read_state


def gathered(comm: Comm | None, own: Any) -> list[Any]:
    """Return the objects of all ranks, by rank; None for `comm`: this is the only one."""
    if comm is None:
        return [own]
    text = torch.frombuffer(bytearray(pickle.dumps(own)), dtype=torch.uint8)
    sizes = comm.all_gather(torch.tensor([text.numel()])).wait().flatten().tolist()
    padded = torch.zeros(max(sizes), dtype=torch.uint8)
    padded[: text.numel()] = text
    rows = comm.all_gather(padded).wait()
    return [pickle.loads(bytes(row[:size].tolist())) for row, size in zip(rows, sizes, strict=True)]


def summed(comm: Comm | None, tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor` summed over ranks, in place."""
    return tensor if comm is None else comm.all_reduce(tensor).wait()


def together(comm: Comm | None) -> None:
    """Return once all ranks are here."""
    summed(comm, torch.zeros(1))


KEEP = 2
_COMPLETE = "COMPLETE"
_TENSOR_BYTES = 400
"""About what a file of torch.save takes for a tensor besides its numbers."""


@dataclass(frozen=True)
class Loaded:
    """A rank's state after `step` finished steps, None at the start, and which checkpoints were passed over."""

    step: int
    state: dict[str, Any] | None
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run, as one of its ranks sees them. All ranks call each method together.

    `identity` says which run and data the states belong to; another identity or world size is refused. `comm` is on
    the CPU (None: this is the only rank).
    """

    directory: Path
    identity: Mapping[str, str]
    rank: int = 0
    world_size: int = 1
    comm: Comm | None = None

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Keep `state` as the checkpoint after `step` finished steps, then delete all but the last two.

        Raises RunError on all ranks when there is no room for it or a file cannot be written; nothing is left of it
        then, and earlier checkpoints are as they were.
        """
        folder = self.directory / f"step-{step}"
        self._check_room(folder, _nbytes(state))
        path, digest, problem = folder / f"rank{self.rank}.pt", "", ""
        try:
            own_folder(self.directory)
            own_folder(folder)
            digest = _write_state(path, state)
        except OSError as error:
            problem = f"rank {self.rank}: {of_writing(error, path, _nbytes(state)).strerror}"
        found = gathered(self.comm, (digest, problem))  # every rank's file is durable when this returns
        problem = next((problem for _, problem in found if problem), "")
        if self.rank == 0 and not problem:
            seal = {"identity": self.identity, "world_size": self.world_size, "sha256": [one for one, _ in found]}
            try:
                write_json(folder / _COMPLETE, json.dumps(seal))
            except OSError as error:
                problem = f"rank 0: {error.strerror}"
        if problem:
            with suppress(OSError):
                if not folder.is_symlink():
                    path.unlink(missing_ok=True)
                    folder.rmdir()  # by the last of the ranks
            raise RunError(f"checkpoint {folder} cannot be written: {problem}; {self._resumed()}")
        if self.rank == 0:
            try:
                self._prune()
            except OSError as error:
                raise RunError(f"old checkpoints of {self.directory} cannot be deleted: {error}") from error

    def _check_room(self, folder: Path, own_bytes: int) -> None:
        """Raise RunError on all ranks when what they want to write together is more than what is free."""
        needed_bytes = sum(gathered(self.comm, own_bytes))
        free = gathered(self.comm, free_bytes(folder) if self.rank == 0 else None)[0]
        if needed_bytes > free:
            raise RunError(
                f"checkpoint {folder} needs {megabytes(needed_bytes)} and there are {megabytes(free)} free; once there "
                f"is room: {self._resumed()}"
            )

    def load(self) -> Loaded:
        """Return this rank's state from the newest checkpoint that is complete and whose checksums match.

        Raises ConfigError on all ranks when that checkpoint belongs to another run, data or world size.
        """
        step, skipped, refusal = gathered(self.comm, self._newest() if self.rank == 0 else None)[0]
        if refusal:
            raise ConfigError(refusal)
        if step is None:
            return Loaded(0, None, skipped)
        path = self.directory / f"step-{step}" / f"rank{self.rank}.pt"
        return Loaded(step, read_state(path), skipped)

    def _newest(self) -> tuple[int | None, tuple[str, ...], str]:
        skipped: list[str] = []
        for step, folder in reversed(self._folders()):
            try:
                # What COMPLETE holds, which has a digest of each rank's file; ValueError if not.
                seal = dict(loads((folder / _COMPLETE).read_text()))
                ranks, digests = seal["world_size"], seal["sha256"]
                if not isinstance(digests, list) or not 0 < len(digests) == ranks:
                    raise ValueError(f"{_COMPLETE} is of {ranks} ranks, and has not the digests of so many files")
                refusal = self._refusal(folder, seal)
                if not refusal:
                    _check_files(folder, seal["sha256"])
            except FileNotFoundError as error:
                skipped.append(f"checkpoint {folder.name} skipped: {Path(error.filename).name} is missing")
            except OSError as error:
                skipped.append(f"checkpoint {folder.name} skipped: {error.strerror} ({Path(error.filename).name})")
            except DAMAGED as error:
                skipped.append(f"checkpoint {folder.name} skipped: {error}")
            else:
                return step, tuple(skipped), refusal
        return None, tuple(skipped), ""

    def _refusal(self, folder: Path, seal: Mapping[str, Any]) -> str:
        if seal["world_size"] != self.world_size:
            return (
                f"checkpoint {folder} was written by {seal['world_size']} ranks and holds one residual a rank, so "
                f"{self.world_size} ranks cannot resume it; use world_size={seal['world_size']} or another directory"
            )
        for key, value in self.identity.items():
            if seal["identity"].get(key) != value:
                return (
                    f"checkpoint {folder} belongs to {key} {seal['identity'].get(key)}, this run has {value}; "
                    "delete the checkpoint to start anew"
                )
        return ""

    def _resumed(self) -> str:
        """Return where the run goes on after a checkpoint that was not written."""
        if complete := self._complete():
            return f"the run resumes from the checkpoint of step {complete[-1]}, which is still there"
        return "there is no earlier checkpoint, so the run starts again at step 0"

    def _complete(self) -> list[int]:
        return [step for step, folder in self._folders() if (folder / _COMPLETE).exists()]

    def _folders(self) -> list[tuple[int, Path]]:
        return [(step, self.directory / f"step-{step}") for step in numbered(self.directory, "step-")]

    def _prune(self) -> None:
        complete = self._complete()
        for step, folder in self._folders():
            if step < complete[-KEEP:][0]:
                (folder / _COMPLETE).unlink(missing_ok=True)  # first, so that what is left never looks complete
                shutil.rmtree(folder)


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


def _nbytes(state: Any) -> int:
    """Return the bytes that a file of `state` takes, by what its tensors hold: all the rest is small."""
    leaves = tree_leaves(state)
    storages = [leaf.untyped_storage() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    each = {storage.data_ptr(): storage.nbytes() + _TENSOR_BYTES for storage in storages}
    return sum(each.values()) + sum(len(leaf) if isinstance(leaf, str | bytes) else 8 for leaf in leaves)


def _write_state(path: Path, state: Mapping[str, Any]) -> str:
    """Write `state` durably to `path` and return the SHA-256 of the file; after an OSError nothing is left of it."""
    with replacing(path, "w+b") as file:
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
        return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()


def _check_files(folder: Path, digests: Sequence[str]) -> None:
    for rank, expected in enumerate(digests):
        path = folder / f"rank{rank}.pt"
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected:
                raise ValueError(f"the checksum of {path.name} does not match")
