"""S2 Reducer Table 2: cluster and training settings, beside what conf/ has for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.ledger import claims_of
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.configured import cluster, decays, epochs, judge_setup, memory_gb, workload
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.pages import draw_claims
from ssfx.core.rows import Row
from ssfx.lab.workloads.schedule import STEP_FACTOR

NAME = "s2reducer.table2"
TITLE = "Training settings of S2 Reducer"
COMMAND = f"ssfx figures {NAME}"

SLOW, FAST = "s2reducer_1gbe", "s2reducer_10gbe"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write every setting beside what is configured here."""
    return draw_claims(NAME, TITLE, judge(rows), out, origin="From the configuration of ssfx (conf/); no run.")


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every setting."""
    here = {
        f"{NAME}.workers": lambda: float(cluster(SLOW).world_size),
        f"{NAME}.nodes": lambda: float(cluster(SLOW).nodes),
        f"{NAME}.gpus_per_node": lambda: float(cluster(SLOW).devices_per_node),
        f"{NAME}.gpu_mem": lambda: memory_gb(SLOW),
        f"{NAME}.net_cnn": lambda: cluster(SLOW).inter.gbps,
        f"{NAME}.net_nlp": lambda: cluster(FAST).inter.gbps,
        f"{NAME}.bs_cnn": lambda: float(workload("resnet50_cifar100")["batch_size"]),
        f"{NAME}.bs_lstm": lambda: float(workload("lstm_powersgd")["batch_size"]),
        f"{NAME}.bs_gnmt": lambda: float(workload("gnmt8_wmt16")["batch_size"]),
        f"{NAME}.lr_sgd": lambda: float(workload("resnet50_cifar100")["lr"]),
        f"{NAME}.lr_sgd_scale": lambda: scale("resnet50_cifar100"),
        f"{NAME}.lr_gnmt": lambda: float(workload("gnmt8_wmt16")["lr"]),
        f"{NAME}.ep_cnn": lambda: epochs("resnet50_cifar100"),
        f"{NAME}.decay_cnn1": lambda: decays("resnet50_cifar100")[0],
        f"{NAME}.decay_cnn2": lambda: decays("resnet50_cifar100")[1],
        f"{NAME}.decay_factor": lambda: STEP_FACTOR,
    }
    why = {claim.id: "no run of this length is configured: the LSTM and GNMT have no number of epochs in conf/workload"
           for claim in claims_of(NAME)}  # fmt: skip
    why[f"{NAME}.bs_gnmt_block"] = "one batch size a workload is configured; this one is a word of the command line"
    return complete(NAME, judge_setup(NAME, here, why), COMMAND)


def scale(name: str) -> float:
    """Return by what a workload multiplies its learning rate on the paper's cluster."""
    return float(cluster(SLOW).world_size) if workload(name)["scale_lr_by_ranks"] else 1.0
