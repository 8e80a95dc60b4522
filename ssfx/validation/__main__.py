"""What validation leaves in the repository: `python -m ssfx.validation`, and `... plans` after new recorded runs."""

from __future__ import annotations

import json
import sys

from ssfx.core.files import write_json
from ssfx.core.paths import data_dir, reference_dir, results_dir
from ssfx.results.store import Store
from ssfx.validation.groups import load
from ssfx.validation.recorded import EXPERIMENT, PLANS, write_plans
from ssfx.validation.scores import score


def scores() -> dict[str, dict[str, float]]:
    """Return what `ssfx advise` draws error bars from: recorded runs, and published times and ratios of iterations."""
    recorded = load("recorded")[0].total
    steps = [pair for group in load("published") if group.whole_steps for pair in group.pairs if pair.whole_step]
    found = {"recorded": recorded, "published": score(steps)}
    return {
        name: {"mean": round(one.mean, 4), "max": round(one.maximum, 4), "count": one.count}
        for name, one in found.items()
    }


def main(words: list[str]) -> None:
    """Write the scores into ssfx/data/validation.json; with `plans`, the plans that the reference runs executed first.

    The latter are found in results/runs, where the runs of experiment=validation must still be.
    """
    if words == ["plans"]:
        rows = [row for row in Store(results_dir()).reference_rows() if row.case.experiment == EXPERIMENT]
        print(f"{PLANS}: {write_plans(rows, results_dir() / 'runs', reference_dir() / PLANS)} plans")
    elif words:
        sys.exit(f"unknown word {words[0]!r}; say plans or nothing")
    path, found = data_dir() / "validation.json", scores()
    write_json(path, json.dumps(found, indent=1))
    print(f"{path}: " + ", ".join(f"{name} mean {one['mean']:.3f}" for name, one in found.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
