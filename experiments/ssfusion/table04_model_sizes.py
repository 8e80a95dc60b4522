"""SSFusion Table IV: sizes of the models of the evaluation, from their shapes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.verdicts import Outcome, Verdict, compared
from experiments.common.figures.tables import draw_table
from ssfx.core.rows import Row
from ssfx.perf_model.operator_counts import model_work

NAME = "ssfusion.table4"
TITLE = "Table IV: evaluation tasks with the sizes of their models in float32"
COMMAND = "ssfx figures ssfusion.table4"
COST = "seconds on one core"

MASKS_BYTES = 36 * 4 * 2**20
"""Causal masks that a stored GPT2-large holds beside its parameters: one of 4 MiB a layer."""


@dataclass(frozen=True)
class Network:
    """Shapes that may be meant; `extra_bytes` are stored with the parameters."""

    model: str
    definition: str
    extra_bytes: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes in float32."""
        return 4 * sum(spec.numel for spec in model_work(self.model).tensors) + self.extra_bytes


@dataclass(frozen=True)
class Task:
    """A row of the table: what the paper prints, the network of its task, and others that may be meant."""

    claim: str
    kind: str
    model: str
    dataset: str
    printed: str
    network: Network
    others: tuple[Network, ...] = ()

    @property
    def decimals(self) -> int:
        """Decimals of the printed number."""
        return len(self.printed.split()[0].partition(".")[2])

    @property
    def stated(self) -> float:
        """The printed number."""
        return float(self.printed.split()[0])

    def fits(self, network: Network) -> str:
        """Return the size as it must be rounded to give the printed number, "" if neither unit does."""
        prefix = self.printed.split()[1]
        units = {"MB": ((1e6, "MB"), (2**20, "MiB")), "GB": ((1e9, "GB"), (2**30, "GiB"))}[prefix]
        for divisor, unit in units:
            size = network.nbytes / divisor
            if compared("", self.stated, size, decimals=self.decimals).outcome == "agrees":
                return f"{size:.2f} {unit}"
        return ""

    def own(self) -> str:
        """Return the size of the task's network in the unit of the table, taken as decimal."""
        divisor = {"MB": 1e6, "GB": 1e9}[self.printed.split()[1]]
        return f"{self.network.nbytes / divisor:.2f} {self.printed.split()[1]}"


SQUAD = Network("bert_base", "question answering head")
TASKS = (
    Task("vitl", "image", "ViT-large", "ImageNet", "1.2 GB", Network("vit_large", "1,000 classes")),
    Task("resnet152_in", "image", "ResNet-152", "ImageNet", "230 MB", Network("resnet152", "1,000 classes")),
    Task("resnet152_c100", "image", "ResNet-152", "CIFAR-100", "230 MB",
         Network("resnet152_cifar100", "3x3 stem, 100 classes"), (Network("resnet152", "the ImageNet network"),)),
    Task("vgg19", "image", "VGG-19", "CIFAR-100", "548 MB", Network("vgg19", "the ImageNet network")),
    Task("gpt2l", "language", "GPT2-large", "WikiText-103", "3.2 GB", Network("gpt2_large", "tied output layer"),
         (Network("gpt2_large", "the stored file, with 36 causal masks", MASKS_BYTES),)),
    Task("lstm", "language", "LSTM", "WikiText-2", "328 MB",
         Network("lstm_wikitext2", "1,500 units, 2 layers, 33,278 words, tied")),
    Task("bertl", "language", "BERT-large", "SQuAD", "1.32 GB", Network("bert_large", "question answering head"),
         (Network("bert_large_pretraining", "both pre-training heads"),)),
    Task("bertb", "language", "BERT-base", "SQuAD", "420 MB", SQUAD,
         (Network("bert_base_pretraining", "both pre-training heads"),)),
    Task("gpt2xl", "language", "GPT2-XL", "", "6 GB", Network("gpt2_xl", "tied output layer")),
    Task("bloom3b", "language", "BLOOM-3B", "", "12 GB", Network("bloom_3b", "tied output layer")),
)  # fmt: skip
CIFAR = {"vgg19"}
"""Rows whose task is on CIFAR-100 but whose size is only that of the ImageNet network."""
NOTES = (
    "MB may mean 1,000,000 bytes or 2^20, GB 10^9 or 2^30: a size agrees if it rounds to the printed number in either.",
    "partly: only another network than that of the task has the printed size.",
)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the table: per task the paper's size, ours, and which network has the printed one."""
    table = []
    for task in TASKS:
        outcome, here, why = _outcome(task)
        table.append(
            {
                "model": task.model,
                "dataset": task.dataset,
                "paper": task.printed,
                "ssfx": here or task.own(),
                "parameters": task.network.nbytes // 4,
                "verdict": outcome,
                "network": why,
                "claim": f"{NAME}.{task.claim}",
            }
        )
    columns = {"model": "model", "dataset": "data set", "paper": "paper", "ssfx": "ssfx",
               "verdict": "verdict", "network": "network"}  # fmt: skip
    return draw_table(NAME, TITLE, columns, table, out)


def finding(rows: list[Row]) -> str:
    """Return how many sizes agree, and which do not at all."""
    outcomes = {task: _outcome(task)[0] for task in TASKS}
    agree = sum(outcome == "agrees" for outcome in outcomes.values())
    never = ", ".join(task.model for task, outcome in outcomes.items() if outcome == "disagrees")
    return f"{agree} of {len(TASKS)} sizes are those of the task's network; of none that was tried: {never}"


def judge(rows: list[Row]) -> list[Verdict]:
    """Return a verdict on every size, and on what the text says about the number of models and tasks."""
    found = []
    for task in TASKS:
        outcome, here, why = _outcome(task)
        said = f"{why[0].upper()}{why[1:]}."
        ours = here or task.own()
        found.append(Verdict(f"{NAME}.{task.claim}", outcome, ours, "computed", "", said, COMMAND, COST))
    models = {task.model: task.kind for task in TASKS}
    counts = {
        "models_nine": len(models),
        "models_image": sum(kind == "image" for kind in models.values()),
        "models_nlp": sum(kind == "language" for kind in models.values()),
        "tasks": len(TASKS),
    }
    for name, count in counts.items():
        claim = claims_by_id()[f"ssfusion.setup.{name}"]
        assert claim.bounds is not None
        found.append(compared(claim.id, claim.bounds[0], count, decimals=0, command=COMMAND))
    return found


def _outcome(task: Task) -> tuple[Outcome, str, str]:
    """Return the verdict, the size that fits and the network that has it."""
    if here := task.fits(task.network):
        if task.claim in CIFAR:
            return "partly", here, f"{task.network.definition}, not one for {task.dataset}"
        return "agrees", here, task.network.definition
    for other in task.others:
        if here := task.fits(other):
            return "partly", here, f"{other.definition}; that of the task has {task.own()}"
    tried = " or ".join(f"{one.definition} ({one.nbytes / 1e9:.3f} GB)" for one in (task.network, *task.others))
    return "disagrees", "", f"no network that was tried: {tried}"
