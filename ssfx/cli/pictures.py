"""Pictures without a library: stacked bars in a terminal, bars and lines as SVG in an HTML page for any browser."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from math import log10
from pathlib import Path

from ssfx.core.errors import ConfigError
from ssfx.core.files import check_writable, write_atomic
from ssfx.core.numbers import rounded

PARTS = {"compute": ("#", "#8cc8ee"), "compression": ("+", "#e69f00"), "exposed exchange": ("-", "#d55e00")}
"""What a step is made of, and the character and colour of each."""
_WIDTH = 60
_COLOURS = ("#5f5f5f", "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c564b")

Bars = Mapping[str, Mapping[str, float]]
"""By label, the seconds of each of PARTS."""
Lines = Mapping[str, Mapping[float, float]]
"""By label, seconds over the values of an axis."""


def parts_of(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """Return the seconds of each of PARTS of a simulated step."""
    seconds = {name: value or 0.0 for name, value in metrics.items()}
    exposed, compression = seconds["exposed_comm_s"], seconds["sparsify_s"]
    return {
        "compute": max(0.0, seconds["iteration_s"] - exposed - compression),
        "compression": compression,
        "exposed exchange": exposed,
    }


def bar_lines(bars: Bars) -> list[str]:
    """Return the bars as lines of text, the longest as wide as the terminal allows, and what each character means."""
    most, wide = max(sum(parts.values()) for parts in bars.values()), max(map(len, bars))
    found = [", ".join(f"{mark} {name}" for name, (mark, _) in PARTS.items())]
    for label, parts in bars.items():
        at, ends = 0.0, [0]
        for name in PARTS:
            at += parts[name]
            ends.append(round(_WIDTH * at / most))
        drawn = "".join(
            mark * (end - begin) for (mark, _), (begin, end) in zip(PARTS.values(), pairwise(ends), strict=True)
        )
        found.append(f"{label:{wide}} {1e3 * at:9.1f} ms  {drawn}")
    return found


def bars_svg(bars: Bars) -> str:
    """Return the bars as an SVG picture."""
    most = max(sum(parts.values()) for parts in bars.values())
    found, x = [], 220
    for number, (name, (_, colour)) in enumerate(PARTS.items()):
        found.append(_box(x + 150 * number, 4, 12, 12, colour) + _text(x + 150 * number + 18, 15, name))
    for row, (label, parts) in enumerate(bars.items()):
        y, left = 30 + 22 * row, float(x)
        found.append(_text(x - 8, y + 12, label, "end"))
        for name, (_, colour) in PARTS.items():
            width = 480 * parts[name] / most
            found.append(_box(left, y, width, 16, colour))
            left += width
        found.append(_text(left + 6, y + 12, f"{1e3 * sum(parts.values()):.1f} ms"))
    return _svg(800, 40 + 22 * len(bars), found)


def lines_svg(lines: Lines, axis: str) -> str:
    """Return the lines as an SVG picture, both axes logarithmic."""
    points = [(value, seconds) for line in lines.values() for value, seconds in line.items()]
    (x0, x1), (y0, y1) = ((log10(min(one)), log10(max(one))) for one in zip(*points, strict=True))

    def place(value: float, seconds: float) -> tuple[float, float]:
        return 70 + 500 * (log10(value) - x0) / (x1 - x0 or 1), 360 - 330 * (log10(seconds) - y0) / (y1 - y0 or 1)

    found = [_text(320, 396, axis, "middle"), _text(8, 16, "ms a step")]
    for value in sorted({value for value, _ in points}):
        found.append(_text(place(value, 10**y0)[0], 378, f"{value:g}", "middle"))
    for seconds in (10**y0, 10 ** ((y0 + y1) / 2), 10**y1):
        found.append(_text(64, place(10**x0, seconds)[1] + 4, rounded(1e3 * seconds, 4), "end"))
    for number, (label, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in sorted(line.items()))
        found.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        found.append(_box(585, 20 + 20 * number, 12, 12, colour) + _text(603, 31 + 20 * number, label))
    return _svg(800, max(410, 40 + 20 * len(lines)), found)


def write_page(path: Path, title: str, svg: str, text: str) -> None:
    """Write an HTML page with a picture and lines of text below it; ConfigError where that cannot be."""
    check_writable(path.parent, "name another file")
    page = (
        f"<!doctype html><meta charset=utf-8><title>{escape(title)}</title>"
        "<body style='font:15px sans-serif;max-width:60em;margin:2em auto'>"
        f"<h1 style='font-size:20px'>{escape(title)}</h1>{svg}<pre style='white-space:pre-wrap'>{escape(text)}</pre>\n"
    )
    try:
        write_atomic(path, page)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="100%" font-size="12">'
    return head + "".join(parts) + "</svg>"


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
