"""`python -m ssfx.validation` writes the scores that `ssfx advise` draws error bars from into the package."""

from __future__ import annotations

import json

from ssfx.paths import data_dir
from ssfx.validation.groups import load
from ssfx.validation.scores import score

WHOLE_STEPS = ("ACP-SGD", "MergeComp")
"""Titles of published groups begin so where they are about whole iterations, not about communication alone."""


def main() -> None:
    """Write ssfx/data/validation.json: recorded runs as predicted beforehand, published times of whole iterations."""
    recorded = load("recorded")[0].total
    steps = [pair for group in load("published") if group.title.startswith(WHOLE_STEPS) for pair in group.pairs]
    found = {"recorded": recorded, "published": score(steps)}
    scores = {name: {"mean": one.mean, "max": one.maximum, "count": one.count} for name, one in found.items()}
    path = data_dir() / "validation.json"
    path.write_text(json.dumps(scores, indent=1) + "\n")
    print(f"{path}: " + ", ".join(f"{name} mean {one['mean']:.3f}" for name, one in scores.items()))


if __name__ == "__main__":
    main()
