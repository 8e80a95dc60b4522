"""S2 Reducer section 3.3: the query is unbiased; whether sketched block Top-K is a contraction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import PROOF, absent, complete, number, says
from experiments.common.evaluation.pages import draw_claims
from experiments.common.evaluation.sketch_example import bias, collisions, relative_noise
from ssfx.core.rows import Row

NAME = "s2reducer.text.theory"
TITLE = "Theorems of S2 Reducer, tried on small made-up vectors"
COMMAND = f"ssfx figures {NAME}"

BUCKETS = 32
ERRORS = 3.0
"""Standard errors within which a mean counts as what theory says."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write what was tried for every statement."""
    origin = (
        "Computed by ssfx: the hash functions of its collective s2_sketch on small made-up vectors; no training run."
    )
    return draw_claims(NAME, TITLE, judge(rows), out, origin=origin)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every theorem that can be tried."""
    mean, error = bias()
    equal, opposite = collisions(BUCKETS)
    ratio = number("s2reducer.appB3.best")
    noise = relative_noise(ratio)
    expected = 1 / (2 * BUCKETS)
    close = max(abs(equal / expected - 1), abs(opposite / expected - 1)) < 0.2
    grows = (
        f"the sketch adds {noise:.2g} times the energy of what was sent at lambda = {ratio:g}, so the operator is no "
        "contraction (S2-06)"
    )
    return complete(
        NAME,
        [
            says("s2reducer.theorem1.unbiased", abs(mean) < ERRORS * error, f"{mean:.3f} +- {error:.3f}"),
            absent("s2reducer.theorem1.rate", PROOF),
            says(
                "s2reducer.theorem1.collision", close,
                f"{equal:.4f} and {opposite:.4f} with {BUCKETS} buckets, theory {expected:.4f}",
            ),
            says("s2reducer.theorem2.delta", noise < 1e-6, f"error of {noise:.2g} times what was sent", grows),
            absent("s2reducer.theorem2.rate", PROOF),
        ],
        COMMAND,
    )  # fmt: skip
