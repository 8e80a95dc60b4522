"""What validation leaves in the repository: `python -m experiments.common.validation`, `... plans` after new runs."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from experiments.common.claims.grouped import grouped
from experiments.common.validation.ground_truth import load
from experiments.common.validation.recorded import EXPERIMENT, PLANS, write_plans
from experiments.common.validation.scores import Pair, by_way, score
from ssfx.core.files import write_json
from ssfx.core.paths import data_dir, reference_dir, results_dir
from ssfx.lab.results.store import Store


def scores() -> dict[str, dict[str, Any]]:
    """Return what `ssfx advise` draws error bars from: recorded runs, and published times and ratios of iterations.

    Of each, and of each kind of network, way of sending in it and paper: {mean, max, count}; "ways" has the latter.
    A ratio of two steps counts for the ways of both but for dense sums, which only ratios of dense steps count for.
    """
    recorded = load("recorded")[0].pairs
    published = [pair for group in load("published") for pair in group.pairs if pair.whole_step and pair.sent]
    return {
        name: {**_scored(pairs), "ways": _ways(pairs)}
        for name, pairs in (("recorded", recorded), ("published", published))
    }


def _ways(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    by_paper = grouped(pairs, lambda pair: pair.claim.partition(".")[0])
    return [
        {"sent": way, "network": network, **({"paper": paper} if paper else {}), **_scored(own)}
        for paper, several in by_paper.items()
        for (way, network), own in sorted(by_way(several).items())
    ]


def _scored(pairs: Sequence[Pair]) -> dict[str, float]:
    one = score(pairs)
    return {"mean": round(one.mean, 4), "max": round(one.maximum, 4), "count": one.count}


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
