"""What a person sees while cases run: a bar with time left and live throughput, or plain lines in a log file."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ssfx.core.case import Case
from ssfx.core.rows import Row

if TYPE_CHECKING:
    from rich.console import Console


LOG_EVERY_S = 60.0
"""Seconds between two lines of a log file that say how far a run is."""


class Report:
    """Tells about `cases` on standard error: a bar on a terminal, else plain lines; nothing when `shown` is false."""

    def __init__(self, cases: Sequence[Case], shown: bool, console: Console | None = None) -> None:
        # Imported here: listing the engines must not cost what a progress bar needs.
        from rich.console import Console as Rich
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = console or Rich(stderr=True, quiet=not shown, soft_wrap=True)
        self._cases = len(cases)
        self._finished = 0
        self._steps: dict[str, int] = {}
        self._noted: set[str] = set()
        self._waited_for: dict[str, str] = {}
        self._told_s = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[rate]}"),
            console=self._console,
            disable=not (shown and self._console.is_terminal),
            transient=True,
        )
        self._task = self._bar.add_task("", total=sum(case.steps for case in cases), rate="")

    def __enter__(self) -> Report:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._bar.disable:  # rich before 14.3 ends a disabled one with an empty line
            self._bar.stop()

    def note(self, text: str) -> None:
        """Say one line."""
        self._console.print(text, markup=False, highlight=False)

    def step(self, case: Case, record: Mapping[str, Any]) -> None:
        """Move the bar to the step of `record`; a log file has a line for it every LOG_EVERY_S."""
        samples = case.batch_size * case.accumulate * case.trained_ranks
        rate = f"{samples / record['iteration_s']:.0f} samples/s" if record["iteration_s"] > 0 else ""
        self._done(case, record["step"] + 1, description=case.label, rate=rate)
        if not self._console.is_terminal and time.monotonic() - self._told_s >= LOG_EVERY_S:
            self._told_s = time.monotonic()
            self.note(f"{case.label}: step {record['step'] + 1:,} of {case.steps:,}{rate and f', {rate}'}")

    def waits(self, case: Case, what: str) -> None:
        """Show what the run of `case` waits for, "" for nothing; in a log file each such thing is one line, once."""
        if what == self._waited_for.get(case.run_id, ""):
            return
        self._waited_for[case.run_id] = what
        self._bar.update(self._task, description=f"{case.label}: {what}" if what else case.label)
        if what and what not in self._noted and not self._console.is_terminal:
            self._noted.add(what)
            self.note(f"{case.label}: {what}")

    def known(self, row: Row) -> None:
        """Say that the row's run was finished earlier."""
        self._count(row, "already finished, nothing to do")

    def finished(self, row: Row) -> None:
        """Say that the row's run is finished now, and what its ranks noted, unless an earlier run's did."""
        self._count(row, "finished")
        for note in row.manifest.get("notes", ()):
            if note not in self._noted:
                self._noted.add(note)
                self.note(f"note: {note}")

    def failed(self, case: Case, reason: str) -> None:
        """Say that the run of `case` failed, and why."""
        self._finished += 1
        self._done(case, case.steps, rate="")
        self.note(f"[{self._finished}/{self._cases}] {reason}")

    def _count(self, row: Row, what: str) -> None:
        self._finished += 1
        self._done(row.case, row.case.steps, rate="")
        seconds = row.metrics.get("iteration_s")
        speed = f", {seconds:.4g} s/step" if seconds is not None else ""
        self.note(f"[{self._finished}/{self._cases}] {row.run_id} {row.case.label}: {what}{speed}")

    def _done(self, case: Case, steps: int, **shown: Any) -> None:
        """Move the bar: so many steps of `case` are done, which may be one of several that are under way."""
        self._steps[case.run_id] = steps
        self._bar.update(self._task, completed=sum(self._steps.values()), **shown)
