"""The store: run directories and their rows. Finished rows are the only truth; figures and claims read them here."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ssfx.core.case import Case
from ssfx.core.errors import RunError
from ssfx.core.files import write_atomic
from ssfx.core.paths import reference_dir
from ssfx.results.curves import curves
from ssfx.results.rows import Row
from ssfx.results.run_lock import RunLock

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["finished", "failed", "half", "new"]
_SEAL = ',"row_sha256":"'
_ATTEMPT = re.compile(r"attempt-(\d+)")


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
        return _read_row_file(path) if path.exists() else None

    def attempts(self, case: Case) -> list[int]:
        """Return the numbers of the attempts made so far, ascending."""
        directory = self.run_dir(case)
        found = [_ATTEMPT.fullmatch(path.name) for path in directory.iterdir()] if directory.is_dir() else []
        return sorted(int(match[1]) for match in found if match)

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

    def claim(self, case: Case, *, wait: bool = False) -> RunLock | None:
        """Return the exclusive claim on the case's run; None when another launcher has it and `wait` is false."""
        return RunLock.take(self.run_dir(case), wait=wait)

    def save(self, row: Row) -> None:
        """Make the row's run a finished one, atomically."""
        path = self.runs / row.run_id / "row.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, _sealed(row.to_json()) + "\n")

    def rows(self, experiment: str | None = None) -> list[Row]:
        """Return the rows of all finished runs, of one experiment if named, in the order of their run ids."""
        found = (_read_row_file(path) for path in sorted(self.runs.glob("*/row.json")))
        return [row for row in found if experiment in (None, row.case.experiment)]

    def curves(self, experiment: str | None = None) -> pd.DataFrame:
        """Return the curves of `rows(experiment)` as a data frame, one line per point; see ssfx.results.curves."""
        return curves(self.rows(experiment))

    def reference_rows(self, experiment: str | None = None) -> list[Row]:
        """Return the committed rows, in the order of file names and lines."""
        found = (row for path in sorted(self.reference.glob("*.jsonl")) for row in read_rows(path))
        return [row for row in found if experiment in (None, row.case.experiment)]

    def readable(self) -> tuple[list[Row], list[Unreadable]]:
        """Return the committed rows and those of finished runs, and apart from them what cannot be read."""
        rows: list[Row] = []
        broken: list[Unreadable] = []
        for path in sorted(self.reference.glob("*.jsonl")):
            good, bad = _read_lines(path)
            rows += good
            broken += [Unreadable(message, tuple(row.case for row in good)) for message in bad]
        for path in sorted(self.runs.glob("*/row.json")):
            try:
                rows.append(_read_row_file(path))
            except RunError as error:
                broken.append(Unreadable(str(error), _case_in_folder_of(path)))
        return rows, broken


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a JSONL file; RunError with file and line for the first corrupt one."""
    lines = _text(path).split("\n")
    return [_parse(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _read_lines(path: Path) -> tuple[list[Row], list[str]]:
    """Return the rows of a JSONL file, and what is wrong with each line that is none."""
    rows, wrong = [], []
    try:
        lines = _text(path).split("\n")
    except RunError as error:
        return [], [str(error)]
    for number, line in enumerate(lines, start=1):
        try:
            rows += [_parse(path, number, line)] if line.strip() else []
        except RunError as error:
            wrong.append(str(error))
    return rows, wrong


def _case_in_folder_of(path: Path) -> tuple[Case, ...]:
    try:
        return (Case(**json.loads((path.parent / "case.json").read_text())),)
    except (OSError, ValueError, TypeError):
        return ()


def export(rows: Iterable[Row], path: Path) -> None:
    """Write `rows` to the JSONL file `path`, one a line, atomically; read_rows returns them again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "".join(row.to_json() + "\n" for row in rows))


def to_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return one line per row: run_id, kind (of origin), the case's fields, the metrics; a missing metric is NaN."""
    import pandas as pd

    return pd.DataFrame([dict(_cells(row)) for row in rows])


def _cells(row: Row) -> Iterator[tuple[str, object]]:
    yield "run_id", row.run_id
    yield "kind", row.origin.kind
    for name in Case.__dataclass_fields__:
        value = getattr(row.case, name)
        yield name, json.dumps(value, sort_keys=True) if name == "scheme_options" else value
    yield from row.metrics.items()


def _read_row_file(path: Path) -> Row:
    rows = read_rows(path)
    if len(rows) != 1 or rows[0].run_id != path.parent.name:
        raise RunError(f"{path}:1: not the row of run {path.parent.name}; remove the file to run the case again")
    return rows[0]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RunError(f"{path}:1: not text ({error.reason})") from None


def _sealed(line: str) -> str:
    """Return the JSON object in `line` with its SHA-256 as a last field: a flipped digit is still JSON."""
    return f'{line[:-1]}{_SEAL}{hashlib.sha256(line.encode()).hexdigest()}"}}'


def _check_seal(line: str) -> None:
    """Raise ValueError when `line` is not what was sealed. Committed rows have no seal, and git has theirs."""
    body, seal, digest = line.strip().rpartition(_SEAL)
    if seal and hashlib.sha256(f"{body}}}".encode()).hexdigest() != digest.removesuffix('"}'):
        raise ValueError("its checksum does not match: it was changed after it was written")


def _parse(path: Path, number: int, line: str) -> Row:
    try:
        _check_seal(line)
        return Row.from_json(line)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(
            f"{path}:{number}: not a row of this version of ssfx ({error}); remove it to run again"
        ) from None
