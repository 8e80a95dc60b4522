"""Chrome/Perfetto traces of what the runtime did, in the stage names that the simulator uses too."""

from __future__ import annotations

import json
from pathlib import Path

TRACKS = ("compute", "host", "network")


class Tracer:
    """Collects spans by `perf_counter` seconds; a disabled tracer collects nothing."""

    def __init__(self, enabled: bool, rank: int) -> None:
        self.enabled = enabled
        self.rank = rank
        self._events: list[dict[str, object]] = []

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
            }
        )

    def save(self, path: Path) -> None:
        """Write the trace as Chrome JSON, atomically; open it in Perfetto or chrome://tracing."""
        names = [
            {"name": "thread_name", "ph": "M", "pid": self.rank, "tid": i, "args": {"name": track}}
            for i, track in enumerate(TRACKS)
        ]
        process = {"name": "process_name", "ph": "M", "pid": self.rank, "args": {"name": f"rank {self.rank}"}}
        part = path.with_suffix(".part")
        part.write_text(json.dumps({"traceEvents": [process, *names, *self._events], "displayTimeUnit": "ms"}))
        part.replace(path)
