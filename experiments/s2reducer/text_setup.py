"""S2 Reducer sections 1 and 4: the cluster, its rivals and the compression rate, beside what is here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.configured import cluster, experiment, judge_setup
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.pages import draw_claims
from ssfx.collectives import collectives
from ssfx.collectives.base import Load
from ssfx.core.rows import Row
from ssfx.schemes import schemes

NAME = "s2reducer.text.setup"
TITLE = "Cluster, rivals and compression rate of S2 Reducer"
COMMAND = f"ssfx figures {NAME}"

RIVALS = ("fused_all", "parallax", "sparcml", "omnireduce")
"""AllGather, Parallax, SparCML and OmniReduce as they are called here."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write every setting beside what is configured here."""
    return draw_claims(NAME, TITLE, judge(rows), out, origin="From the configuration of ssfx (conf/); no run.")


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every setting."""
    here = {
        "s2reducer.headline.baselines": lambda: float(sum(name in schemes for name in RIVALS)),
        "s2reducer.intro.two_allgather": lambda: float(sparse_gathers()),
        "s2reducer.intro.gpus": lambda: float(cluster("s2reducer_10gbe").world_size),
        "s2reducer.setup.bw": lambda: cluster("s2reducer_10gbe").inter.gbps,
        "s2reducer.setup.bw_cnn": lambda: cluster("s2reducer_1gbe").inter.gbps,
        "s2reducer.setup.rate": lambda: float(experiment("s2_sparse")["density"]),
    }
    why = {"s2reducer.intro.emb_sparsity": "depends on the words of a batch of data that are not here"}
    return complete(NAME, judge_setup(NAME, here, why), COMMAND)


def sparse_gathers() -> int:
    """Return how many all-gathers collective all_gather_twice takes for indices and values."""
    phases = collectives.build("all_gather_twice").phases(Load(numel=8, nbytes=16, kept=2, world_size=2))
    return sum(phase.primitive == "all_gather" for phase in phases)
