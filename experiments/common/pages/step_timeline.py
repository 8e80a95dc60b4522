"""The simulated step of a row, for the report: an inline picture, and its Chrome trace as a file to save."""

import base64
import gzip
import html
import json
from collections.abc import Sequence
from typing import Any

from ssfx.advice.cases import simulate_case
from ssfx.core.errors import ConfigError
from ssfx.core.rows import Row
from ssfx.simulator.trace import TRACKS, events_of

COLOURS = {
    "forward": "#e3e3e3", "backward": "#c9c9c9", "compress": "#e69f00", "to_host": "#9fd8c4", "from_host": "#9fd8c4",
    "exchange": "#0072b2", "decompress": "#f0c36a", "step": "#a0a0a0", "other": "#a0a0a0", "wait": "#ffffff",
}  # fmt: skip
WIDTH, LINE, LEFT = 900, 18, 90
"""Of the picture, in its own units: all of it, one track, and what the tracks' names take."""


def chosen_row(rows: Sequence[Row]) -> Row | None:
    """Return the simulated row whose step is shown: SSFusion's if there is one, else the first; None without any."""
    simulated = [row for row in rows if row.origin.kind == "simulated"]
    return next((row for row in simulated if row.case.scheme.startswith("ssfusion")), next(iter(simulated), None))


def step_timeline(row: Row) -> str:
    """Return HTML with the step of a simulated row, track by track, each span named when the pointer is over it.

    "" for a row that this version of ssfx would simulate otherwise or not at all.
    """
    try:
        _, step = simulate_case(row.case)
    except ConfigError:
        return ""
    if abs(step.iteration_s - float(row.metrics.get("iteration_s") or 0.0)) > 1e-6 * step.iteration_s:
        return ""
    events = list(events_of(row.case.label, step, 1))
    spans = _merged([event for event in events if event["ph"] == "X"])
    end_us = max(span["ts"] + span["dur"] for span in spans)
    tracks = [number for number in range(len(TRACKS)) if any(span["tid"] == number for span in spans)]
    names = list(TRACKS.values())
    parts = [
        f'<text x="0" y="{LINE * (line + 0.7):g}" font-size="11">{names[number]}</text>'
        for line, number in enumerate(tracks)
    ]
    for span in spans:
        x, width = (LEFT + (WIDTH - LEFT) * value / end_us for value in (span["ts"], span["ts"] + span["dur"]))
        label = f"{span['name']}: {span['ts'] / 1e3:.3f} to {(span['ts'] + span['dur']) / 1e3:.3f} ms"
        parts.append(
            f'<rect x="{x:.1f}" y="{LINE * tracks.index(span["tid"]) + 1}" width="{max(0.3, width - x):.1f}" '
            f'height="{LINE - 3}" fill="{COLOURS[span["cat"]]}"><title>{html.escape(label)}</title></rect>'
        )
    packed = gzip.compress(json.dumps({"traceEvents": events}, separators=(",", ":")).encode(), mtime=0)
    link = f"data:application/gzip;base64,{base64.b64encode(packed).decode()}"
    said = f"{row.case.label}, {row.case.cluster}, {row.case.calibration}: {step.iteration_s * 1e3:.1f} ms"
    return (
        f'<details class="timeline"><summary>simulated step of {html.escape(said)}</summary>'
        f'<svg viewBox="0 0 {WIDTH} {LINE * len(tracks)}" role="img">{"".join(parts)}</svg>'
        f'<p><a download="{row.run_id}.trace.json.gz" href="{link}">Chrome trace</a>, to be opened in Perfetto</p>'
        "</details>"
    )


def _merged(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the spans with neighbours of one track and kind as one: a model has hundreds of backward spans."""
    found: list[dict[str, Any]] = []
    for event in events:
        last = found[-1] if found else None
        joins = last and (last["tid"], last["cat"]) == (event["tid"], event["cat"]) and event["cat"] == "backward"
        if last and joins and event["ts"] - last["ts"] - last["dur"] < 1e-3:
            last |= {"dur": event["ts"] + event["dur"] - last["ts"], "name": "backward"}
        else:
            found.append(dict(event))
    return found
