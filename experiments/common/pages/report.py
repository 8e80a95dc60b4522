"""The report: one HTML page, which needs nothing else, with every figure, every claim and every verdict."""

import base64
import gzip
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from experiments.common.claims.grouped import grouped
from experiments.common.claims.ledger import Ledger, PaperClaim, ledgers
from experiments.common.claims.verdicts import (
    COLUMNS,
    Column,
    Verdict,
    by_kind,
    by_paper,
    by_source,
    headline,
    kind,
    paper_says,
    papers,
    sentence,
    total,
)
from experiments.common.figures.discovery import chosen
from experiments.common.figures.drawing import Inputs
from experiments.common.figures.every_claim import verdicts
from experiments.common.figures.figure import Figure
from experiments.common.figures.timelines import COLOURS as STAGES
from experiments.common.pages.reproduction import TWICE, by_other_times, is_of, obtained, says_twice, source
from ssfx.advice.cases import simulate_case
from ssfx.cli.page import plotly_js, section, tables_of
from ssfx.core.errors import ConfigError
from ssfx.core.files import write_atomic
from ssfx.core.rows import Row
from ssfx.simulator.trace import TRACKS, events_of

PIXELS = 1500
"""Widest a picture is kept: its text is sharp on a screen, and the page stays below ten megabytes."""
PACKED = ".packed"
"""Folder beside the pictures that keeps them as the page has them."""
ROWS_SHOWN = 200
"""Rows of a figure that are listed; their number is said in any case."""
NUMBERS = ("iteration_s", "throughput_samples_per_s", "sparsify_s", "exposed_comm_s", "sent_bytes", "top1", "f1")
PLAY = (
    "ssfx advise model=bert_large,gpt2 cluster=box cluster.nodes=8 cluster.device=a100,rtx4090 cluster.link=25gbe_tcp"
)
"""What the last section answers, and the command of such a page."""
ORIGINS = ("computed", "measured", "emulated", "simulated", "published", "restated", "none")


def report_page(rows: Sequence[Row], pictures: Path, paper: str | None = None) -> str:
    """Return the page of all papers, or of one; `pictures` is a folder with the figures as PNG; some may be missing."""
    figures = chosen([paper] if paper else [])
    found = verdicts(figures, rows)
    counted = headline(found)
    by_claim = grouped(found, lambda one: one.claim)
    ledger = {one.paper: one for one in ledgers()}
    body = [_filters(), _link_to_conditions(figures, pictures)]
    if paper is None:
        body.insert(0, _summary(counted, by_other_times(found)))
    for key, name in papers().items():
        if paper not in (None, key):
            continue
        one = ledger[key]
        said = f"{escape(one.title)}, {escape(one.venue)}. {sentence(by_paper(counted)[key])}"
        twice = "".join(f"<tr><td>{escape(what)}<td>{escape(met)}" for what, met in says_twice(one, counted))
        heads = "".join(f"<th>{head}" for head in TWICE)
        body.append(f'<section class="paper"><h2 id="{key}">{name}</h2><p>{said}.</p>')
        opened = " open" if paper else ""
        body.append(
            f'<details{opened}><summary>{TWICE[0]}</summary><table class="twice"><tr>{heads}{twice}</table></details>'
        )
        for artifact in one.artifacts:
            body.append(_artifact(artifact, one, figures, by_claim, counted, rows, pictures))
        body.append("</section>")
    named = {artifact["id"] for one in ledgers() for artifact in one.artifacts}
    rest = [figure for figure in figures if not any(is_of(figure, name) for name in named)]
    if rest:
        shown = "".join(_figure(figure, rows, pictures, figure.name) for figure in rest)
        body.append(f'<section class="paper"><h2 id="others">Other figures</h2>{shown}</section>')
    body.append(
        f'<section class="paper"><h2 id="yours">A page to play with</h2><p>{escape(PLAY)} --page FILE.html makes '
        f"this, also of your own words.</p>{section(tables_of(PLAY.split()[2:]), plotly_js())}</section>"
    )
    look, work = _look_and_work()
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>ssfx: claims and figures</title><style>{look}</style>"
    )
    return (
        f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}'
        f"<script>{work}</script></body></html>\n"
    )


def _summary(counted: Mapping[str, Verdict], by_times: str) -> str:
    names = papers()
    links = {f'<a href="#{paper}">{names[paper]}</a>': counts for paper, counts in by_paper(counted).items()}
    tables = [
        _counts("paper", links),
        _counts("kind of claim", {str(name): counts for name, counts in by_kind(counted).items()}),
        _counts("source of our value", by_source(counted)),
    ]
    found = total(counted)
    return (
        f"<h1>What the papers claim, and what ssfx finds</h1><p><b>{found.total()} claims of {len(names)} papers: "
        f"{sentence(found)}.</b></p><p>A claim agrees where our range lies inside the stated one, partly where they "
        "overlap, and disagrees where they do not. Simulated values rest on the costs that stand beside them; nothing "
        f'is fitted to a claim. {by_times}</p><div class="tables">{"".join(tables)}</div>'
    )


def _counts(first: str, counted: Mapping[str, Counter[Column]]) -> str:
    heads = "".join(f"<th>{word}" for word in (first, "claims", *COLUMNS))
    lines = "".join(
        f"<tr><td>{name}<td>{counts.total()}" + "".join(f"<td>{counts[column] or ''}" for column in COLUMNS)
        for name, counts in counted.items()
    )
    return f'<table class="counts"><tr>{heads}{lines}</table>'


def _filters() -> str:
    choices: dict[str, list[tuple[str, str]]] = {
        "paper": list(papers().items()),
        "verdict": [(outcome, outcome) for outcome in COLUMNS if outcome != "restated"],
        "origin": [(origin, origin) for origin in ORIGINS],
    }
    fields = "".join(
        f'<label>{name} <select id="{name}"><option value="">all</option>'
        + "".join(f'<option value="{value}">{escape(word)}</option>' for value, word in options)
        + "</select></label>"
        for name, options in choices.items()
    )
    return (
        f'<div id="filters">{fields}<label>search <input id="search" type="search" '
        'placeholder="words of a claim, a model, a scheme"></label><span id="shown"></span></div>'
    )


def _link_to_conditions(figures: Sequence[Figure], pictures: Path) -> str:
    maps = [figure for figure in figures if "conditions" in figure.name and _picture(pictures, figure.name)]
    return "".join(f'<p><a href="#figure-{one.name}">{escape(one.title)}</a></p>' for one in maps)


def _artifact(
    artifact: Mapping[str, Any],
    ledger: Ledger,
    figures: Sequence[Figure],
    by_claim: Mapping[str, Sequence[Verdict]],
    counted: Mapping[str, Verdict],
    rows: Sequence[Row],
    pictures: Path,
) -> str:
    own = [figure for figure in figures if is_of(figure, artifact["id"])]
    ids = {one["id"] for one in ledger.artifacts} - {artifact["id"]}
    shown = "".join(
        f'<p>The picture of <a href="#figure-{figure.name}">{figure.name}</a>.</p>'
        if figure.name in ids
        else _figure(figure, rows, pictures, artifact["id"])
        for figure in own
    )
    missing = "" if own else '<p class="why">ssfx has no figure of it.</p>'
    claims = [claim for claim in ledger.claims if claim.artifact == artifact["id"]]
    lines = "".join(
        _claim(claim, by_claim[claim.id], counted[claim.id], ledger.paper, artifact["title"]) for claim in claims
    )
    table = f'<table class="claims"><tr><th>claim<th>paper<th>here<th>verdict{lines}</table>' if claims else ""
    head = f"<h3>{artifact['id']}</h3><p>In the paper: {escape(artifact['title'])}.</p>"
    body = f'<div class="pair"><div>{shown}{missing}</div>{table}</div>'
    start = f'<section class="artifact" data-paper="{ledger.paper}" id="figure-{artifact["id"]}">'
    return f"{start}{head}{body}</section>"


def _figure(figure: Figure, rows: Sequence[Row], pictures: Path, at: str) -> str:
    chosen = figure.select(rows)
    picture = _picture(pictures, figure.name)
    said = figure.finding(chosen) if chosen or not figure.needs else "no rows yet"
    notes = "".join(f"<p>{escape(note)}</p>" for note in figure.notes)
    shown = chosen_row(chosen)
    step = step_timeline(shown) if shown else ""
    anchor = "" if figure.name == at else f' id="figure-{figure.name}"'
    return (
        f"<figure{anchor}>{picture}<figcaption>{escape(said)}.<details><summary>how to make it, and from what"
        f"</summary><pre>{escape(figure.command)}</pre>{notes}{_rows(chosen)}</details>{step}</figcaption></figure>"
    )


def _rows(chosen: Sequence[Row]) -> str:
    if not chosen:
        return ""
    lines = "".join(
        f'<tr title="{escape(_manifest(row))}"><td>{escape(row.run_id)}<td>'
        f"{escape(row.case.label)}<td>{escape(row.case.model)}<td>{row.case.world_size}"
        f"<td>{row.kind} on {escape(row.origin.hardware)}, {row.origin.date[:10]}<td>{escape(_commit(row))}"
        for row in chosen[:ROWS_SHOWN]
    )
    more = f"<p>and {len(chosen) - ROWS_SHOWN} more</p>" if len(chosen) > ROWS_SHOWN else ""
    heads = "<tr><th>run<th>case<th>model<th>ranks<th>origin<th>commit"
    return f'<p>Rows: {escape(obtained(chosen))}.</p><table class="rows">{heads}{lines}</table>{more}'


def _manifest(row: Row) -> str:
    """Return what is shown while the pointer is over a row: its numbers, and what it was obtained with."""
    numbers = [f"{name} {row.metrics[name]:.4g}" for name in NUMBERS if row.metrics.get(name) is not None]
    versions = [f"{name} {value}" for name, value in sorted((row.manifest.get("versions") or {}).items())]
    return "; ".join([*numbers, f"seed {row.case.seed}", *versions, f"commit {_commit(row)}"])


def _commit(row: Row) -> str:
    code = row.manifest.get("code") or {}
    return str(code.get("commit", ""))[:9]


def _claim(claim: PaperClaim, several: Sequence[Verdict], counted: Verdict, paper: str, heading: str) -> str:
    outcome = counted.outcome.replace(" ", "-")
    others = "".join(f"<li>{_said(one)}" for one in several)
    facts = " ".join(f"{key}: {value}." for key, value in claim.conditions.items())
    said = f"{claim.locator}. {facts}"
    why = f'<div class="why">{escape(counted.reason)}</div>' if counted.reason else ""
    return (
        f'<tr id="{claim.id}" data-words="{escape(_words(claim, paper, heading))}" data-paper="{paper}" '
        f'data-verdict="{counted.outcome}" data-origin="{counted.source}">'
        f"<td>{escape(claim.statement)}{why}<details><summary>{claim.id}</summary>{escape(said)} {kind(claim)}."
        f"<ul>{others}</ul></details><td>{escape(paper_says(claim))}<td>{escape(counted.ours) or '-'}"
        f'<div class="why">{source(counted)}</div><td class="{outcome}">{counted.outcome}'
    )


def _words(claim: PaperClaim, paper: str, heading: str) -> str:
    """Return what a claim is searched by beside what it says: paper, figure, heading, and sections marked as such."""
    sections = [part.strip().split()[0] for part in re.split(r"[;,]", claim.locator) if part.strip()]
    marked = " ".join(f"\u00a7{one}" for one in sections if re.fullmatch(r"[IVX]+(-[A-Z])?|\d+(\.\d+)*", one))
    parts = (papers()[paper], claim.artifact, heading, claim.subject, claim.baseline or "", marked)
    return " ".join(map(str, parts))


def _said(one: Verdict) -> str:
    words = [f"{source(one)}: {one.ours or 'no value'}: {one.outcome}", one.reason, one.command, one.cost]
    return escape(". ".join(filter(None, words)))


def _picture(pictures: Path, name: str) -> str:
    """Return the figure as an image that is part of the page, "" where there is none."""
    path = pictures / f"{name}.png"
    return f'<img alt="{name}" loading="lazy" src="{_data(path)}">' if path.exists() else ""


def _data(path: Path) -> str:
    """Return a picture as a data URL: WebP without loss, which keeps every colour and takes a third of the bytes.

    Packing takes most of the page's time, so that what was packed is kept beside the pictures, by what it was made of.
    """
    content = path.read_bytes()
    kept = path.parent / PACKED / f"{path.stem}.{hashlib.sha256(content).hexdigest()[:32]}.{PIXELS}.webp"
    try:
        packed = kept.read_bytes()
    except OSError:
        packed = _packed(content)
        _keep(kept, packed, f"{path.stem}.{'?' * 32}.*.webp")
    return f"data:image/webp;base64,{base64.b64encode(packed).decode()}"


def _packed(content: bytes) -> bytes:
    from PIL import Image

    packed = io.BytesIO()
    with Image.open(io.BytesIO(content)) as image:
        flat = image.convert("RGB")
        if flat.width > PIXELS:
            size = PIXELS, round(flat.height * PIXELS / flat.width)
            flat = flat.resize(size, Image.Resampling.LANCZOS)
        flat.save(packed, "WEBP", lossless=True, method=2, quality=20)  # half the time of the smallest, a fifth larger
    return packed.getvalue()


def _keep(path: Path, packed: bytes, others: str) -> None:
    """Write what was packed in place of what older pictures were packed to; a read-only folder stays as it is."""
    try:
        path.parent.mkdir(exist_ok=True)
        for old in path.parent.glob(others):
            old.unlink()
        partial = path.with_suffix(".partial")
        partial.write_bytes(packed)
        partial.replace(path)
    except OSError:
        return


# ---- the simulated step of a row: a picture, and its Chrome trace as a file to save ----------------------------------

COLOURS = {**STAGES, "exchange": "#0072b2", "step": "#a0a0a0", "other": "#a0a0a0", "wait": "#ffffff"}
WIDTH, TRACK, LEFT = 900, 18, 90
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
        f'<text x="0" y="{TRACK * (line + 0.7):g}" font-size="11">{names[number]}</text>'
        for line, number in enumerate(tracks)
    ]
    for span in spans:
        x, width = (LEFT + (WIDTH - LEFT) * value / end_us for value in (span["ts"], span["ts"] + span["dur"]))
        label = f"{span['name']}: {span['ts'] / 1e3:.3f} to {(span['ts'] + span['dur']) / 1e3:.3f} ms"
        parts.append(
            f'<rect x="{x:.1f}" y="{TRACK * tracks.index(span["tid"]) + 1}" width="{max(0.3, width - x):.1f}" '
            f'height="{TRACK - 3}" fill="{COLOURS[span["cat"]]}"><title>{escape(label)}</title></rect>'
        )
    packed = gzip.compress(json.dumps({"traceEvents": events}, separators=(",", ":")).encode(), mtime=0)
    link = f"data:application/gzip;base64,{base64.b64encode(packed).decode()}"
    said = f"{row.case.label}, {row.case.cluster}, {row.case.calibration}: {step.iteration_s * 1e3:.1f} ms"
    return (
        f'<details class="timeline"><summary>simulated step of {escape(said)}</summary>'
        f'<svg viewBox="0 0 {WIDTH} {TRACK * len(tracks)}" role="img">{"".join(parts)}</svg>'
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


# ---- the file --------------------------------------------------------------------------------------------------------

MARK = "<!-- made from "
"""Begins the last line of the page, which has the digests of what the page was made from and of the page."""


def write_report(
    rows: Sequence[Row], pictures: Path, path: Path, now: Inputs | None = None, paper: str | None = None
) -> bool:
    """The page at `path`, of all papers or one, is what rows and pictures give; return whether it was made again.

    A page that was edited, or cut, is made again too.
    """
    figures = chosen([paper] if paper else [])
    inputs = _digest(
        (paper or "") + "".join(_look_and_work()) + (now or Inputs(placeholders=True)).of_all(figures, rows, pictures)
    )
    if _is_current(path, inputs):
        return False
    page = report_page(rows, pictures, paper)
    write_atomic(path, f"{page}{MARK}{inputs} {_digest(page)} -->\n")
    return True


def _look_and_work() -> list[str]:
    return [files("experiments.common.pages").joinpath(name).read_text("utf-8") for name in ("report.css", "report.js")]


def _is_current(path: Path, inputs: str) -> bool:
    try:
        page, mark, digests = path.read_text("utf-8").rpartition(MARK)
    except (OSError, UnicodeDecodeError):
        return False  # it is made again, which is always right
    return bool(mark) and digests == f"{inputs} {_digest(page)} -->\n"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
