"""Chrome/Perfetto traces of what the runtime did, in the stage names that the simulator uses too."""

import json
from pathlib import Path

from ssfx.core.files import replacing

TRACKS = ("compute", "host", "network")
BEGIN = "begin"
"""Category of the instants at which steps begin."""


class Tracer:
    """Collects spans by `perf_counter` seconds; a disabled tracer collects nothing."""

    def __init__(self, enabled: bool, rank: int) -> None:
        self.enabled = enabled
        self.rank = rank
        self._step: int | None = None
        self._events: list[dict[str, object]] = []

    def begin(self, step: int, start_s: float) -> None:
        """Note that optimizer step number `step` began at `start_s`; later spans belong to it."""
        if not self.enabled:
            return
        self._step = step
        self._events.append(
            {
                "name": f"step {step} begins", "cat": BEGIN, "ph": "i", "s": "p", "ts": start_s * 1e6,
                "pid": self.rank, "tid": 0, "args": {"step": step},
            }
        )  # fmt: skip

    def span(self, stage: str, start_s: float, end_s: float, track: str = "compute", detail: str = "") -> None:
        """Note that `stage` ran on `track` from `start_s` to `end_s`."""
        if not self.enabled:
            return
        self._events.append(
            {
                "name": f"{stage} {detail}".strip(),
                "cat": stage,
                "ph": "X",
                "ts": start_s * 1e6,
                "dur": max(0.0, end_s - start_s) * 1e6,
                "pid": self.rank,
                "tid": TRACKS.index(track),
                **({} if self._step is None else {"args": {"step": self._step}}),
            }
        )

    def save(self, path: Path) -> None:
        """Write the trace as Chrome JSON, atomically; open it in Perfetto or chrome://tracing."""
        names = [
            {"name": "thread_name", "ph": "M", "pid": self.rank, "tid": i, "args": {"name": track}}
            for i, track in enumerate(TRACKS)
        ]
        process = {"name": "process_name", "ph": "M", "pid": self.rank, "args": {"name": f"rank {self.rank}"}}
        drawn = {"traceEvents": [process, *names, *self._events], "displayTimeUnit": "ms"}
        with replacing(path) as file:
            file.write(json.dumps(drawn))
