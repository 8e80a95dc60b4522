"""What SSFusion's Experiments 1 and 3 say together about compute, by arithmetic alone: a part of docs/validation.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.common.claims.ledger import claims_by_id
from experiments.common.pages.markdown import table
from ssfx.perf_model.roofline import analytic_profile

MODELS = {"bertl": "bert_large", "resnet152": "resnet152"}
"""Those of Experiment 3, by the paper's name in ids of claims."""
GPUS, DENSITY, PAIR_BYTES = 64, 0.01, 8
"""Of Experiment 3: every GPU receives an index and a value for each element that another one kept."""


def algebra_block() -> str:
    """Return how large compute can be at most, from the printed gains alone; without a simulator.

    With K, S and C of HiPress's iteration, c and s the shares of C and S that SSFusion leaves, and r its throughput
    over HiPress's: K + S + C = r (K + s S + c C).
    """
    gains = claims_by_id()["ssfusion.exp1.oi_vs_hipress"].value
    assert isinstance(gains, Mapping)
    lines, sentences = [], []
    for short, model in MODELS.items():
        comm = 1 - _reduction(f"ssfusion.exp3.comm.{short}.hipress")
        spars = 1 - _reduction(f"ssfusion.exp3.spars.{short}")
        alone_s = analytic_profile(model, "a100").alone_s()
        needed_s = []
        for gain in (gains["lo"], gains["hi"]):
            ratio = 1 + gain
            of_comm, of_spars = compute(ratio, comm), compute(ratio, spars)
            most = max(0.0, *(part / (1 + part) for part in (of_comm, of_spars)))
            lines.append(
                (model, f"{ratio:.3f}", f"{comm:.1%}", f"{spars:.1%}", f"{of_comm:+.2f} C {of_spars:+.2f} S",
                 f"{most:.0%}" if most else "none")
            )  # fmt: skip
            needed_s.append(alone_s / of_comm if of_comm > 0 else float("inf"))
        sentences.append(_needed(model, alone_s, needed_s))
    header = ("model", "r", "c", "s", "K", "compute at most, of HiPress's iteration")
    return "\n\n".join((table(header, lines), *sentences))


def compute(ratio: float, left: float) -> float:
    """Return the seconds of compute for each of HiPress's of which SSFusion, `ratio` times faster, leaves `left`."""
    return (1 - left * ratio) / (ratio - 1)


def _needed(model: str, alone_s: float, needed_s: list[float]) -> str:
    profile = analytic_profile(model, "a100")
    received = PAIR_BYTES * DENSITY * sum(profile.numel) * (GPUS - 1)
    least_s, most_s = min(needed_s), max(needed_s)
    span = f"at least {least_s:.2g} s" if most_s == float("inf") else f"{least_s:.2g} to {most_s:.2g} s"
    rate = f"at most {received / least_s / 1e9:.2g}" if most_s == float("inf") else (
        f"{received / most_s / 1e9:.2g} to {received / least_s / 1e9:.2g}"
    )  # fmt: skip
    return (
        f"An A100 computes a step of `{model}` at the customary batch in {alone_s:.2g} s by its data sheet. If "
        f"sparsifying took nothing, HiPress's exposed communication would have to take {span}: the "
        f"{received / 1e9:.2g} GB that a GPU receives at density {DENSITY:g} would arrive at {rate} GB/s through a "
        "card of 25."
    )


def _reduction(claim: str) -> float:
    value: Any = claims_by_id()[claim].value
    return float(value)
