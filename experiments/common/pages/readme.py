"""Rebuild what the documentation shows: docs/img, blocks of pages and whole pages, from rows and registries."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.common.figures.drawing import MANIFEST, draw_all
from experiments.common.pages.auto_page import auto_target_block, points_block, steps_block, why_block
from experiments.common.pages.conditions import algebra_block, conditions_block
from experiments.common.pages.edition import bandwidth_block, edition_block
from experiments.common.pages.horizon import horizon_block
from experiments.common.pages.long_runs import long_runs_block, time_to_target_block
from experiments.common.pages.markdown import NOTE, table
from experiments.common.pages.models import analytic_block, models_block
from experiments.common.pages.recorded_runs import (
    emulated_block,
    kernels_block,
    rounds_block,
    sharded_quality_block,
    trainings_block,
)
from experiments.common.pages.recorded_runs import steps_block as gpu_steps_block
from experiments.common.pages.reproduction import IMAGES, paper_blocks, status_block
from experiments.common.validation.gains import HEADINGS, lines
from experiments.common.validation.ground_truth import NAMES, load
from ssfx.advice import advise
from ssfx.config.advice_question import resolve_setting
from ssfx.core.paths import reference_dir
from ssfx.core.rows import Row
from ssfx.lab.results.store import Store

ROOT = Path(__file__).parents[3]
README = ROOT / "README.md"
VALIDATION = ROOT / "docs" / "validation.md"
ADVISE = ROOT / "docs" / "advise.md"

ASKED = ("model=bert_large", "cluster=acpsgd_10gbe")
"""What the printed answer, in README and on the page about advice, is an answer to: one that is yes."""

KEPT = (".png", ".csv")
"""What the repository keeps of a figure; the rest is drawn in seconds."""

_SCORES = (
    "what",
    "n",
    "mean",
    "of no effect",
    "mean of the part beyond compute",
    "median",
    "maximum",
    "bias",
    "tau",
    "inverted by > 5 %",
    "orderings right",
)


def main() -> None:
    """Draw docs/img again and rewrite the pages and the blocks of pages."""
    rows = reference_rows()
    for old in IMAGES.glob("*.*"):
        old.unlink()
    drawn = draw_all([], rows, IMAGES)
    (IMAGES / MANIFEST).unlink(missing_ok=True)
    for path in (path for one in drawn for path in one.files):
        if path.suffix not in KEPT:
            path.unlink()
    for page, blocks in blocks_of_pages().items():
        page.write_text(with_blocks(page.read_text(), blocks))
    README.write_text(updated(README.read_text(), rows))


def reference_rows() -> list[Row]:
    """Return the committed rows."""
    return Store(ROOT / "results", reference_dir()).reference_rows()


def blocks_of_pages() -> dict[Path, dict[str, str]]:
    """Return the blocks of each page that is written by hand otherwise."""
    docs, rows = ROOT / "docs", reference_rows()
    papers = {
        ROOT / "experiments" / paper / "README.md": {"claims": text} for paper, text in paper_blocks(rows).items()
    }
    return papers | {
        ADVISE: {"answer": answer_block()},
        docs / "edition2026.md": {"sentence": edition_block(rows), "bandwidths": bandwidth_block(rows)},
        docs / "auto.md": {
            "why": why_block(),
            "steps": steps_block(),
            "points": points_block(),
            "target": auto_target_block(rows),
        },
        VALIDATION: {
            "scores": scores_block(),
            "gains": table(HEADINGS, lines()),
            "gpu": gpu_steps_block(),
            "trainings": trainings_block(),
            "conditions": conditions_block(IMAGES / "ssfusion.conditions.csv"),
            "algebra": algebra_block(),
        },
        docs / "kernels.md": {"multiples": kernels_block()},
        docs / "emulation.md": {"benchmark": emulated_block()},
        docs / "workloads.md": {
            "models": models_block(),
            "law": long_runs_block(rows),
            "horizon": horizon_block(rows),
            "times": time_to_target_block(rows),
        },
        docs / "profiles.md": {"analytic": analytic_block()},
        docs / "local_updates.md": {"rounds": rounds_block(rows)},
        docs / "sharded.md": {"quality": sharded_quality_block(rows)},
    }


def updated(readme: str, rows: Sequence[Row]) -> str:
    """Return the README's text with its blocks as `rows` and the registered schemes give them."""
    return with_blocks(readme, {"answer": shown_answer(), "status": status_block(rows)})


def with_blocks(page: str, blocks: Mapping[str, str]) -> str:
    """Return the page with each named block, which it must have once, holding the text given for it."""
    for name, text in blocks.items():
        block = f"<!-- {name}: {NOTE} -->\n{text}\n<!-- end of {name} -->"
        parts = re.split(rf"<!-- {name}: .*?<!-- end of {name} -->", page, flags=re.DOTALL)
        if len(parts) != 2:
            raise ValueError(f"the page needs exactly one block {name!r}, it has {len(parts) - 1}")
        page = block.join(parts)
    return page


def answer_block() -> str:
    """Return the command and the first screen of its answer, as a terminal of 100 columns shows it."""
    screen = advise(resolve_setting(ASKED))
    return f"```\n$ ssfx advise {' '.join(ASKED)}\n{screen}\n```"


def shown_answer() -> str:
    """Return the question and its answer, as they stand on the page about advice."""
    (shown,) = re.findall(rf"<!-- answer: {NOTE} -->\n(.*?)\n<!-- end", ADVISE.read_text(), flags=re.DOTALL)
    return str(shown)


def scores_block() -> str:
    """Return what `ssfx validate` finds: one line for each group and for each of its sets, and its notes."""
    groups = [group for name in NAMES for group in load(name)]
    lines = []
    for group in groups:
        for name, scores in reversed(group.scores()):
            *cells, right = group.cells(name, scores, ".3g", "+.2g")
            what = f"**{group.title}**" if name == "all" else name
            lines.append((what, *cells, str(len(scores.inversions)), right))
    notes = [f"- {group.name}: {note}." for group in groups for note in group.notes]
    return "\n".join([table(_SCORES, lines), "", *notes])


if __name__ == "__main__":
    main()
