"""S2 Reducer Table 2: cluster and training settings, beside what conf/ has for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ssfx.claims.verdicts import Verdict
from ssfx.evaluation.configured import NOWHERE, cluster, judge_setup, memory_gb, workload
from ssfx.evaluation.judging import claims_of, complete
from ssfx.evaluation.pages import draw_claims
from ssfx.results.rows import Row

NAME = "s2reducer.table2"
TITLE = "Training settings of S2 Reducer"
CLAIMS = (NAME,)
NEEDS: dict[str, str] = {}
COMMAND = f"ssfx figures {NAME}"

SLOW, FAST = "s2reducer_1gbe", "s2reducer_10gbe"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write every setting beside what is configured here."""
    return draw_claims(NAME, TITLE, judge(rows), out, origin="From the configuration of ssfx (conf/); no run.")


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every setting; the learning rate of CNNs is configured as scaled by the workers."""
    here = {
        f"{NAME}.workers": lambda: float(cluster(SLOW).world_size),
        f"{NAME}.nodes": lambda: float(cluster(SLOW).nodes),
        f"{NAME}.gpus_per_node": lambda: float(cluster(SLOW).devices_per_node),
        f"{NAME}.gpu_mem": lambda: memory_gb(SLOW),
        f"{NAME}.net_cnn": lambda: cluster(SLOW).inter.gbps,
        f"{NAME}.net_nlp": lambda: cluster(FAST).inter.gbps,
        f"{NAME}.bs_cnn": lambda: float(workload("resnet50_cifar100")["batch_size"]),
        f"{NAME}.bs_lstm": lambda: float(workload("lstm_powersgd")["batch_size"]),
        f"{NAME}.lr_sgd": lambda: workload("resnet50_cifar100")["lr"] / cluster(SLOW).world_size,
    }
    why = {claim.id: "no run with this schedule is configured: quality is trained at a smaller scale here"
           for claim in claims_of(NAME)}  # fmt: skip
    why |= dict.fromkeys((f"{NAME}.ep_cnn", f"{NAME}.ep_gnmt"), NOWHERE["epochs"])
    gnmt = "GNMT is not among the models here: the sizes that the paper prints fit no definition (S2-05)"
    why |= dict.fromkeys((f"{NAME}.bs_gnmt", f"{NAME}.bs_gnmt_block", f"{NAME}.lr_gnmt"), gnmt)
    why[f"{NAME}.lr_sgd_scale"] = "contained in the learning rate that is configured, 0.1 times 16 workers"
    return complete(NAME, judge_setup(NAME, here, why), COMMAND)
