"""ACP-SGD sections III-A and V: the testbed and the settings, beside what conf/ has for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.configured import cluster, decays, epochs, judge_setup, memory_gb, workload
from experiments.common.evaluation.judging import complete
from experiments.common.evaluation.low_rank import MODELS
from experiments.common.evaluation.pages import draw_claims
from ssfx.core.rows import Row
from ssfx.lab.workloads.schedule import STEP_FACTOR
from ssfx.perf_model.operator_counts import model_work

NAME = "acpsgd.text.setup"
TITLE = "Testbed and training settings of ACP-SGD"
COMMAND = f"ssfx figures {NAME}"

TESTBED = "acpsgd_10gbe"
TRAINED = "vgg16_cifar10"
CONVERGENCE = "quality is trained on small networks here"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write every setting beside what is configured here."""
    return draw_claims(NAME, TITLE, judge(rows), out, origin="From the configuration of ssfx (conf/); no run.")


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every setting."""
    key = "acpsgd.setup"
    here = {
        f"{key}.gpus": lambda: float(cluster(TESTBED).world_size),
        f"{key}.nodes": lambda: float(cluster(TESTBED).nodes),
        f"{key}.gpus_per_node": lambda: float(cluster(TESTBED).devices_per_node),
        f"{key}.bw": lambda: cluster(TESTBED).inter.gbps,
        f"{key}.gpu_mem": lambda: memory_gb(TESTBED),
        f"{key}.bs.resnet50": lambda: float(workload("resnet50_imagenet")["batch_size"]),
        f"{key}.bs.resnet152": lambda: float(workload("resnet152_imagenet")["batch_size"]),
        f"{key}.bs.bertbase": lambda: float(workload("bert_base_pretraining")["batch_size"]),
        f"{key}.bs.bertlarge": lambda: float(workload("bert_large_pretraining")["batch_size"]),
        f"{key}.img": lambda: float(words("resnet50").split("x")[1]),
        f"{key}.seq": lambda: float(words("bert_base_pretraining").split()[0]),
        f"{key}.rank.resnet": lambda: float(MODELS["ResNet-50"][1]),
        f"{key}.rank.bert": lambda: float(MODELS["BERT-Base"][1]),
        f"{key}.conv.mom": lambda: float(workload(TRAINED)["momentum"]),
        f"{key}.conv.lr": lambda: float(workload(TRAINED)["lr"]),
        f"{key}.conv.bs": lambda: float(workload(TRAINED)["batch_size"]),
        f"{key}.conv.epochs": lambda: epochs(TRAINED),
        f"{key}.conv.warm": lambda: round(workload(TRAINED)["lr_warmup"] * epochs(TRAINED), 3),
        f"{key}.conv.decay1": lambda: decays(TRAINED)[0],
        f"{key}.conv.decay2": lambda: decays(TRAINED)[1],
        f"{key}.conv.decayf": lambda: 1 / STEP_FACTOR,
    }
    why = {f"{key}.conv.{name}": CONVERGENCE for name in ("gpus", "rank")}
    return complete(NAME, judge_setup(NAME, here, why), COMMAND)


def words(model: str) -> str:
    """Return what a sample of a shipped model is, in words, such as 3x224x224 images."""
    return model_work(model).inputs
