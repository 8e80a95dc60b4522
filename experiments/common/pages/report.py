"""The report: one HTML page, which needs nothing else, with every figure, every claim and every verdict."""

import base64
import hashlib
import html
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from experiments.common.claims.ledger import Ledger, PaperClaim, ledgers
from experiments.common.claims.summary import (
    COLUMNS,
    Column,
    by_kind,
    by_paper,
    by_source,
    kind,
    paper_says,
    papers,
    sentence,
    total,
)
from experiments.common.claims.verdicts import Verdict, headline
from experiments.common.figures.discovery import discover, place
from experiments.common.figures.drawing import Inputs
from experiments.common.figures.every_claim import verdicts
from experiments.common.figures.figure import Figure
from experiments.common.pages.reproduction import grouped, is_of, obtained, source
from experiments.common.pages.step_timeline import chosen_row, step_timeline
from ssfx.core.files import write_atomic
from ssfx.core.rows import Row

PIXELS = 1500
"""Widest a picture is kept: its text is sharp on a screen, and the page stays below ten megabytes."""
PACKED = ".packed"
"""Folder beside the pictures that keeps them as the page has them."""
ROWS_SHOWN = 200
"""Rows of a figure that are listed; their number is said in any case."""
NUMBERS = ("iteration_s", "throughput_samples_per_s", "sparsify_s", "exposed_comm_s", "sent_bytes", "top1", "f1")
ORIGINS = ("computed", "measured", "emulated", "simulated", "published", "restated", "none")


def report_page(rows: Sequence[Row], pictures: Path) -> str:
    """Return the whole page; `pictures` is a folder with the figures as PNG, of which some may be missing."""
    figures = sorted(discover().values(), key=lambda figure: place(figure.name))
    found = verdicts(figures, rows)
    counted = headline(found)
    by_claim = grouped(found)
    ledger = {one.paper: one for one in ledgers()}
    body = [_summary(counted), _filters(), _link_to_conditions(figures, pictures)]
    for paper, name in papers().items():
        body.append(_paper(name, ledger[paper], figures, by_claim, counted, rows, pictures))
    named = {artifact["id"] for one in ledgers() for artifact in one.artifacts}
    rest = [figure for figure in figures if not any(is_of(figure, name) for name in named)]
    if rest:
        shown = "".join(_figure(figure, rows, pictures, figure.name) for figure in rest)
        body.append(f'<section class="paper"><h2 id="others">Other figures</h2>{shown}</section>')
    look, work = _look_and_work()
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>ssfx: claims and figures</title><style>{look}</style>"
    )
    return (
        f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}'
        f"<script>{work}</script></body></html>\n"
    )


def _summary(counted: Mapping[str, Verdict]) -> str:
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
        f'is fitted to a claim.</p><div class="tables">{"".join(tables)}</div>'
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
        + "".join(f'<option value="{value}">{_text(word)}</option>' for value, word in options)
        + "</select></label>"
        for name, options in choices.items()
    )
    return (
        f'<div id="filters">{fields}<label>search <input id="search" type="search" '
        'placeholder="words of a claim, a model, a scheme"></label><span id="shown"></span></div>'
    )


def _link_to_conditions(figures: Sequence[Figure], pictures: Path) -> str:
    maps = [figure for figure in figures if "conditions" in figure.name and _picture(pictures, figure.name)]
    return "".join(f'<p><a href="#{_id(one.name)}">{_text(one.title)}</a></p>' for one in maps)


def _paper(
    name: str, ledger: Ledger, figures: Sequence[Figure], by_claim: Mapping[str, Sequence[Verdict]],
    counted: Mapping[str, Verdict], rows: Sequence[Row], pictures: Path,
) -> str:  # fmt: skip
    counts = by_paper(counted)[ledger.paper]
    parts = [
        f'<section class="paper"><h2 id="{ledger.paper}">{name}</h2>',
        f"<p>{_text(ledger.title)}, {_text(ledger.venue)}. {sentence(counts)}.</p>",
    ]
    for artifact in ledger.artifacts:
        parts.append(_artifact(artifact, ledger, figures, by_claim, counted, rows, pictures))
    return "".join([*parts, "</section>"])


def _artifact(
    artifact: Mapping[str, Any], ledger: Ledger, figures: Sequence[Figure], by_claim: Mapping[str, Sequence[Verdict]],
    counted: Mapping[str, Verdict], rows: Sequence[Row], pictures: Path,
) -> str:  # fmt: skip
    own = [figure for figure in figures if is_of(figure, artifact["id"])]
    shown = "".join(_figure(figure, rows, pictures, artifact["id"]) for figure in own)
    missing = "" if own else '<p class="why">ssfx has no figure of it.</p>'
    claims = [claim for claim in ledger.claims if claim.artifact == artifact["id"]]
    lines = "".join(
        _claim(claim, by_claim[claim.id], counted[claim.id], ledger.paper, artifact["title"]) for claim in claims
    )
    table = f'<table class="claims"><tr><th>claim<th>paper<th>here<th>verdict{lines}</table>' if claims else ""
    head = f"<h3>{artifact['id']}</h3><p>In the paper: {_text(artifact['title'])}.</p>"
    body = f'<div class="pair"><div>{shown}{missing}</div>{table}</div>'
    start = f'<section class="artifact" data-paper="{ledger.paper}" id="{_id(artifact["id"])}">'
    return f"{start}{head}{body}</section>"


def _figure(figure: Figure, rows: Sequence[Row], pictures: Path, at: str) -> str:
    chosen = figure.select(rows)
    picture = _picture(pictures, figure.name)
    said = figure.finding(chosen) if chosen or not figure.needs else "no rows yet"
    notes = "".join(f"<p>{_text(note)}</p>" for note in figure.notes)
    shown = chosen_row(chosen)
    step = step_timeline(shown) if shown else ""
    anchor = "" if figure.name == at else f' id="{_id(figure.name)}"'
    return (
        f"<figure{anchor}>{picture}<figcaption>{_text(said)}.<details><summary>how to make it, and from what"
        f"</summary><pre>{_text(figure.command)}</pre>{notes}{_rows(chosen)}</details>{step}</figcaption></figure>"
    )


def _rows(chosen: Sequence[Row]) -> str:
    if not chosen:
        return ""
    lines = "".join(
        f'<tr title="{_text(_manifest(row))}"><td>{_text(row.run_id)}<td>'
        f"{_text(row.case.label)}<td>{_text(row.case.model)}<td>{row.case.world_size}"
        f"<td>{_text(row.origin.kind)} on {_text(row.origin.hardware)}, {row.origin.date[:10]}<td>{_text(_commit(row))}"
        for row in chosen[:ROWS_SHOWN]
    )
    more = f"<p>and {len(chosen) - ROWS_SHOWN} more</p>" if len(chosen) > ROWS_SHOWN else ""
    heads = "<tr><th>run<th>case<th>model<th>ranks<th>origin<th>commit"
    return f'<p>Rows: {_text(obtained(chosen))}.</p><table class="rows">{heads}{lines}</table>{more}'


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
    why = f'<div class="why">{_text(counted.reason)}</div>' if counted.reason else ""
    return (
        f'<tr id="{claim.id}" data-words="{_text(_words(claim, paper, heading))}" data-paper="{paper}" '
        f'data-verdict="{counted.outcome}" data-origin="{counted.source}">'
        f"<td>{_text(claim.statement)}{why}<details><summary>{claim.id}</summary>{_text(said)} {kind(claim)}."
        f"<ul>{others}</ul></details><td>{_text(paper_says(claim))}<td>{_text(counted.ours) or '-'}"
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
    return _text(". ".join(filter(None, words)))


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


def _id(name: str) -> str:
    return f"figure-{name}"


def _text(words: str) -> str:
    return html.escape(words)


MARK = "<!-- made from "
"""Begins the last line of the page, which has the digests of what the page was made from and of the page."""


def write_report(rows: Sequence[Row], pictures: Path, path: Path, now: Inputs | None = None) -> bool:
    """The page at `path` is what rows and pictures give; return whether it had to be made again.

    A page that was edited, or cut, is made again too.
    """
    figures = sorted(discover().values(), key=lambda figure: figure.name)
    inputs = _digest("".join(_look_and_work()) + (now or Inputs(placeholders=True)).of_all(figures, rows, pictures))
    if _is_current(path, inputs):
        return False
    page = report_page(rows, pictures)
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
