"""The store: run directories and their rows. Finished rows are the only truth; figures and claims read them here.

At most one launcher at a time works on a run directory: it claims it.
"""

from __future__ import annotations

import fcntl
import glob
import gzip
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ssfx.core.case import Case, ClusterChoice
from ssfx.core.errors import ConfigError, RunError
from ssfx.core.files import DAMAGED, numbered, open_unlinked, own_folder, replacing, text_of, write_atomic, write_json
from ssfx.core.paths import reference_dir
from ssfx.core.rows import Row, curves
from ssfx.core.spec import Spec

if TYPE_CHECKING:
    import pandas as pd


@dataclass(eq=False)
class RunLock:
    """An exclusive lock on `run_dir`, held until `release`.

    The lock belongs to the open file, not to a file's existence, so the kernel drops it when the last process that
    inherited it has gone: a claim of a dead launcher never has to be recognised as stale. The launcher hands the file
    to torchrun, so that a run whose launcher was killed stays claimed until its ranks have ended too.
    """

    run_dir: Path
    file: int

    @classmethod
    def take(cls, run_dir: Path, *, wait: bool = False, note: bool = True) -> RunLock | None:
        """Return the claim on `run_dir`, creating it; None when another process holds it and `wait` is false.

        With `note` the file says which process has it.
        """
        own_folder(run_dir)
        file = open_unlinked(run_dir / "lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if note:
                os.ftruncate(file, 0)
                os.pwrite(file, str(os.getpid()).encode(), 0)
        except BlockingIOError:
            os.close(file)
            return None
        except BaseException:
            os.close(file)
            raise
        return cls(run_dir, file)

    @staticmethod
    def holder(run_dir: Path) -> str:
        """Return who claimed `run_dir` last, for messages."""
        pid = (run_dir / "lock").read_text().strip()
        return f"process {pid}" if pid else "another process"

    @classmethod
    def is_held(cls, run_dir: Path) -> bool:
        """Return whether a process works on `run_dir` now; the claim is taken and given back to find out."""
        claim = cls.take(run_dir, note=False)
        if claim is None:
            return True
        claim.release()
        return False

    def release(self) -> None:
        """Let others claim the run; a second call does nothing."""
        if self.file >= 0:
            fcntl.flock(self.file, fcntl.LOCK_UN)  # closing is not enough: torchrun holds the same open file
            os.close(self.file)
            self.file = -1


Status = Literal["finished", "failed", "half", "new"]


@dataclass(frozen=True)
class Unreadable:
    """A line or file that should be a row and is none; `kin` are the cases that stand in the same place."""

    message: str
    kin: tuple[Case, ...]


class Store:
    """The results below `root`; `reference` holds committed rows (default: the package's own).

    A corrupt file is a RunError that names file and line: it is neither skipped nor replaced by a new run.
    """

    def __init__(self, root: Path, reference: Path | None = None) -> None:
        self.runs = Path(root).resolve() / "runs"
        self.reference = reference if reference is not None else reference_dir()

    def run_dir(self, case: Case) -> Path:
        """Return the directory of the case's run, existing or not."""
        return self.runs / case.run_id

    def row(self, case: Case) -> Row | None:
        """Return the row of a finished case, None when it is not finished."""
        path = self.run_dir(case) / "row.json"
        return row_in(path) if path.exists() else None

    def attempts(self, case: Case) -> list[int]:
        """Return the numbers of the attempts made so far, ascending."""
        return numbered(self.run_dir(case), "attempt-")

    def attempt_files(self, case: Case, names: Iterable[str]) -> list[Path]:
        """Return the paths of files of those names in the case's latest attempt, existing or not; [] without one."""
        attempts = self.attempts(case)
        return [self.run_dir(case) / f"attempt-{attempts[-1]}" / name for name in names] if attempts else []

    def status(self, case: Case) -> Status:
        """Return how far the case got: finished, failed (the last attempt died), half (it was cut off) or new."""
        if self.row(case) is not None:
            return "finished"
        attempts = self.attempts(case)
        if not attempts:
            return "new"
        return "failed" if (self.run_dir(case) / f"attempt-{attempts[-1]}" / "failure.json").exists() else "half"

    def claim(self, case: Case) -> RunLock | None:
        """Return the exclusive claim on the case's run; None when another launcher has it."""
        return RunLock.take(self.run_dir(case))

    def save(self, row: Row) -> None:
        """Make the row's run a finished one, atomically."""
        path = self.runs / row.run_id / "row.json"
        own_folder(path.parent)
        write_json(path, row.to_json())

    def own_ids(self) -> frozenset[str]:
        """Return the ids of all finished runs."""
        return frozenset(path.parent.name for path in self.runs.glob("*/row.json"))

    def rows(self, experiment: str | None = None) -> list[Row]:
        """Return the rows of all finished runs, of one experiment if named, in the order of their run ids."""
        found = (row_in(path) for path in sorted(self.runs.glob("*/row.json")))
        return [row for row in found if experiment in (None, row.case.experiment)]

    def curves(self, experiment: str | None = None) -> pd.DataFrame:
        """Return the curves of `rows(experiment)` as a data frame, one line per point; see ssfx.core.rows."""
        return curves(self.rows(experiment))

    def reference_rows(self, experiment: str | None = None) -> list[Row]:
        """Return the committed rows, in the order of file names and lines."""
        found = (row for path in reference_files(self.reference) for row in read_rows(path))
        return [row for row in found if experiment in (None, row.case.experiment)]

    def beginning(self, run: str) -> list[Row]:
        """Return the rows of finished runs whose id begins with `run`, those of this folder before committed ones."""
        own = [row_in(path) for path in sorted(self.runs.glob(f"{glob.escape(run)}*/row.json"))]
        named = re.compile(rf'"run_id": ?"{re.escape(run)}')
        lines = [_read_lines(path, lambda line: bool(named.search(line))) for path in reference_files(self.reference)]
        came = [row for found in lines for row in _rows_or_error(*found)]
        return [*own, *(row for row in came if row.run_id.startswith(run))]

    def readable(self, of: Callable[[str], bool] | None = None) -> tuple[list[Row], list[Unreadable]]:
        """Return the committed rows and those of finished runs, and apart from them what cannot be read.

        `of`: the experiments whose rows are asked for, all where there is none; most lines of others are not read.
        """
        rows: list[Row] = []
        broken: list[Unreadable] = []
        asked = of and (lambda line: not (named := _EXPERIMENT.findall(line)) or any(map(of, named)))
        for path in reference_files(self.reference):
            good, bad = _read_lines(path, asked)
            kin = tuple(row.case for row in good)
            rows += good
            broken += [Unreadable(str(one), kin) for one in bad]
        for path in sorted(self.runs.glob("*/row.json")):
            try:
                rows.append(row_in(path))
            except RunError as error:
                broken.append(Unreadable(str(error), _case_in_folder_of(path)))
        return rows, broken


_EXPERIMENT = re.compile(r'"experiment": ?"([^"\\]*)"')
"""How the JSON text of a row names its experiment."""


def reference_files(folder: Path) -> list[Path]:
    """Return the files of committed rows in `folder`, by name; those of thousands of rows are packed."""
    return sorted([*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz")])


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a JSONL file; RunError with file and line for the first corrupt one."""
    return _rows_or_error(*_read_lines(path))


def _rows_or_error(rows: list[Row], wrong: list[RunError]) -> list[Row]:
    if wrong:
        raise wrong[0]
    return rows


def _read_lines(path: Path, asked: Callable[[str], bool] | None = None) -> tuple[list[Row], list[RunError]]:
    """Return the rows of a JSONL file, of the lines `asked` for, and what is wrong with each such line that is none."""
    try:
        text = text_of(path)
    except RunError as error:
        return [], [error]
    rows: list[Row] = []
    wrong: list[RunError] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() and (asked is None or asked(line)):
            try:
                rows.append(_row_of(line))
            except DAMAGED as error:
                what = f"not a row of this version of ssfx ({error}); remove it to run again"
                wrong.append(RunError(f"{path}:{number}: {what}"))
    return rows, wrong


@lru_cache(maxsize=50_000)
def _row_of(line: str) -> Row:
    return Row.from_json(line)  # a process that reads the committed rows again, parses them once


def _case_in_folder_of(path: Path) -> tuple[Case, ...]:
    try:
        return (Case.from_json((path.parent / "case.json").read_text()),)
    except (OSError, *DAMAGED):
        return ()


def export(rows: Iterable[Row], path: Path) -> None:
    """Write `rows` to the JSONL file `path`, one a line, atomically; read_rows returns them again.

    A .gz is packed, to the same bytes every time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(row.to_json() + "\n" for row in rows)
    if path.suffix == ".gz":
        with replacing(path, "wb") as file:
            file.write(gzip.compress(text.encode(), mtime=0))
        return
    write_atomic(path, text)


def to_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return one line per row: run_id, `Row.kind`, the case's fields, what its cluster is made of, the metrics.

    A missing metric is NaN, and so is what is not known of a cluster whose file is no longer here.
    """
    import pandas as pd

    return pd.DataFrame([dict(_cells(row)) for row in rows])


def _cells(row: Row) -> Iterator[tuple[str, object]]:
    yield "run_id", row.run_id
    yield "kind", row.kind
    for name in Case.__dataclass_fields__:
        value = getattr(row.case, name)
        yield name, json.dumps(value, sort_keys=True) if name == "scheme_options" else value
    yield from _network(str(row.case.cluster)).items()
    yield from row.metrics.items()


@cache
def _network(choice: str) -> dict[str, object]:
    """Return nodes, devices and links of the cluster of a row, by its text."""
    from ssfx.perf_model.cluster_file import cluster_on  # late: few read rows as a frame

    spec = Spec.parse(choice, "cluster")
    try:
        found = cluster_on(ClusterChoice(spec.name, spec.options), None, "auto")
    except ConfigError:
        return {}
    return {
        "nodes": found.nodes,
        "devices_per_node": found.devices_per_node,
        "cluster_device": found.device,
        "inter_gbps": found.inter.gbps,
        "inter_latency_s": found.inter.latency_s,
        "intra_gbps": found.intra.gbps,
    }


def row_in(path: Path) -> Row:
    """Return the row in a run's row.json; RunError when it is corrupt, a symbolic link, or that of another run."""
    if path.is_symlink():
        raise RunError(
            f"{path} is a symbolic link, and a row is kept where its run is; remove it to run the case again"
        )
    rows = read_rows(path)
    if len(rows) != 1 or rows[0].run_id != path.parent.name:
        raise RunError(f"{path}:1: not the row of run {path.parent.name}; remove the file to run the case again")
    return rows[0]
