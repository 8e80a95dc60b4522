"""A job: one attempt at one case, and the files in which its ranks report."""

from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from ssfx.core.case import Case
from ssfx.core.errors import RunError
from ssfx.core.files import DAMAGED, loads, read, read_json
from ssfx.lab.results.store import RunLock
from ssfx.lab.worker.heartbeat import Beat, read_beat


@dataclass
class Job:
    """One attempt at `case` by a launcher that holds `claim`; records of rank 0 are read once, as they are written."""

    case: Case
    claim: RunLock
    attempt: int
    _read_bytes: int = field(default=0, repr=False)

    @property
    def run_dir(self) -> Path:
        """The run's directory."""
        return self.claim.run_dir

    @property
    def attempt_dir(self) -> Path:
        """The directory of this attempt; made by whoever starts it."""
        return self.run_dir / f"attempt-{self.attempt}"

    @property
    def log(self) -> Path:
        """What torchrun and the ranks printed."""
        return self.attempt_dir / "torchrun.log"

    def done(self) -> bool:
        """True when every rank has left its result."""
        return all(self._file("result", rank).exists() for rank in range(self.case.trained_ranks))

    def stopped_at(self) -> int | None:
        """Return the step after which all ranks have stopped at a checkpoint; None when they have not."""
        paths = [self._file("stopped", rank) for rank in range(self.case.trained_ranks)]
        if not all(path.exists() for path in paths):
            return None
        return max(read(path, lambda text: int(loads(text)["step"])) for path in paths)

    def results(self) -> list[dict[str, Any]]:
        """Return the results of all ranks, in rank order."""
        return [read(self._file("result", rank), rank_result) for rank in range(self.case.trained_ranks)]

    def failures(self) -> dict[int, dict[str, Any]]:
        """Return time and error of the failure reports by rank; one that cannot be read says so."""
        paths = {rank: self._file("failure", rank) for rank in range(self.case.trained_ranks)}
        return {rank: _failure(path) for rank, path in paths.items() if path.exists()}

    def beats(self) -> dict[int, Beat]:
        """Return the latest heartbeats by rank; ranks that have not begun are absent."""
        beats = {rank: read_beat(self.attempt_dir, rank) for rank in range(self.case.trained_ranks)}
        return {rank: beat for rank, beat in beats.items() if beat is not None}

    def progress(self) -> tuple[object, ...]:
        """Return something that changes whenever any rank makes progress."""
        logs = (self.attempt_dir / f"rank{rank}.jsonl" for rank in range(self.case.trained_ranks))
        return (self.beats(), [log.stat().st_size if log.exists() else 0 for log in logs])

    def new_records(self) -> list[dict[str, Any]]:
        """Return rank 0's step records written since the last call; an unfinished last line is left for the next."""
        path = self.attempt_dir / "rank0.jsonl"
        if not path.exists():
            return []
        try:
            with path.open("rb") as file:
                file.seek(self._read_bytes)
                whole, newline, _ = file.read().rpartition(b"\n")
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror}") from None
        self._read_bytes += len(whole) + len(newline)
        try:
            return [dict(loads(line.decode())) for line in whole.splitlines()]
        except DAMAGED as error:
            raise RunError(f"{path}: a line is not JSON ({error})") from None

    def _file(self, kind: str, rank: int) -> Path:
        return self.attempt_dir / f"{kind}-rank{rank}.json"


_PARTS = (
    "rank",
    "metrics",
    "dataset_fingerprint",
    "plan_digest",
    "first_step",
    "notes",
    "gpus",
    "cores",
    "started",
    "stopped",
)
_TIMES = ("wall_s", "machine_busy_s", "own_busy_s", "peak_memory_bytes")


def rank_result(text: str) -> dict[str, Any]:
    """Return what a rank left; an error of DAMAGED where something that a row is made of is missing or cannot be."""
    found = dict(loads(text))
    for name in _PARTS:
        found[name]
    for name in _TIMES:
        if not 0 <= found[name] < inf:
            raise ValueError(f"{name} must be finite and not negative, got {found[name]!r}")
    dict(found["metrics"])
    return found


def _failure(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
        return {"time": float(found["time"]), "error": str(found["error"])}
    except (RunError, *DAMAGED) as error:
        return {"time": inf, "error": f"something; its report cannot be read ({error})"}
