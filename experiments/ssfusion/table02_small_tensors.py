"""SSFusion Table II: how many gradient tensors are small, and how little of the model they hold; from shapes alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.verdicts import Verdict, compared
from experiments.common.figures.tables import draw_table
from ssfx.core.rows import Row
from ssfx.perf_model.operator_counts import model_work

NAME = "ssfusion.table2"
TITLE = "Table II: number and size proportion of small and large tensors"
COMMAND = "ssfx figures ssfusion.table2"

THRESHOLD = 102_400
"""Elements; a tensor with fewer is small."""
FEW_LABELS = 10


@dataclass(frozen=True)
class Network:
    """A network of the table; `labels` replaces the outputs of the last layer where the table needs other ones."""

    claim: str
    name: str
    model: str
    definition: str
    labels: int | None = None


NETWORKS = (
    Network("resnet152", "ResNet-152", "resnet152_cifar100", "3x3 stem and 100 classes, as for CIFAR-100"),
    Network("vitlarge", "ViT-large", "vit_large", f"ViT-L/16 with {FEW_LABELS} classes", FEW_LABELS),
    Network("bertlarge", "BERT-large", "bert_large", "question answering head, no pooler"),
    Network("gpt2large", "GPT2-large", "gpt2_large", "output layer tied to the embedding"),
)
SHARES = {
    "small.count": "small, number",
    "small.size": "small, size",
    "large.count": "large, number",
    "large.size": "large, size",
}
NOTES = (
    "ViT-large matches only with a head of at most ten classes: with the 1,000 classes of ImageNet, the task that the "
    "paper names for it, one more tensor is large and the share of small ones is 62.50 %.",
    "ResNet-152 matches only as it is built for CIFAR-100, and not with the ImageNet head (2.31 % of the size).",
)


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the table in percent: per network the four shares, ours and the paper's."""
    table = []
    for network in NETWORKS:
        ours = shares(network)
        for key, heading in SHARES.items():
            claim = claims_by_id()[f"{NAME}.{network.claim}.{key}"]
            assert claim.bounds is not None
            verdict = compared(claim.id, claim.bounds[0], ours[key], decimals=2)
            table.append(
                {
                    "model": network.name if key == "small.count" else "",
                    "tensors": sizes(network)[0] if key == "small.count" else "",
                    "share": heading,
                    "ssfx": f"{ours[key]:.2f}",
                    "paper": f"{claim.bounds[0]:.2f}",
                    "verdict": verdict.outcome,
                    "network": network.definition if key == "small.count" else "",
                    "claim": claim.id,
                }
            )
    columns = {
        "model": "model",
        "tensors": "tensors",
        "share": "share (small: fewer\nthan 102,400 elements)",
        "ssfx": "ssfx\n(%)",
        "paper": "paper\n(%)",
        "verdict": "verdict",
        "network": "network whose shapes give this",
    }
    return draw_table(NAME, TITLE, columns, table, out)


def finding(rows: list[Row]) -> str:
    """Return the shares of small tensors."""
    parts = [f"{network.name} {shares(network)['small.count']:.2f} %" for network in NETWORKS]
    return f"tensors of fewer than {THRESHOLD:,} elements: {', '.join(parts)}"


def judge(rows: list[Row]) -> list[Verdict]:
    """Return a verdict on every share, and on the threshold in elements and in bytes."""
    found = []
    for network in NETWORKS:
        ours = shares(network)
        for key in SHARES:
            claim = claims_by_id()[f"{NAME}.{network.claim}.{key}"]
            assert claim.bounds is not None
            why = f"With {network.definition}."
            one = compared(claim.id, claim.bounds[0], ours[key], decimals=2, unit="%", reason=why, command=COMMAND)
            of_task = shares(replace(network, labels=None))[key]
            if compared(claim.id, claim.bounds[0], of_task, decimals=2).outcome != one.outcome:
                other = f"Only with {network.definition}; that of the task has {of_task:.2f} %."
                one = replace(one, outcome="partly", reason=other)
            found.append(one)
    every = all(one.outcome in ("agrees", "partly") for one in found)
    found.append(
        Verdict(
            f"{NAME}.threshold", "agrees" if every else "disagrees", f"{THRESHOLD:,} elements", "computed",
            reason="This threshold, taken as strictly less, gives every share of the table.", command=COMMAND,
            cost="seconds on one core",
        )
    )  # fmt: skip
    kilobytes = [width * THRESHOLD / 1000 for width in (2, 4)]
    found.append(
        compared(
            f"{NAME}.threshold_kb", (200.0, 200.0), (kilobytes[0], kilobytes[1]), relative=0.05, unit="KB",
            reason="102,400 elements are 205 KB at two bytes each, and 410 KB in float32.", command=COMMAND,
            cost="seconds on one core",
        )
    )  # fmt: skip
    return found


def shares(network: Network) -> dict[str, float]:
    """Return the four shares in percent."""
    numels = _numels(network)
    small = [numel for numel in numels if numel < THRESHOLD]
    count, size = 100 * len(small) / len(numels), 100 * sum(small) / sum(numels)
    return {"small.count": count, "small.size": size, "large.count": 100 - count, "large.size": 100 - size}


def sizes(network: Network) -> tuple[int, int]:
    """Return the number of tensors and of elements."""
    numels = _numels(network)
    return len(numels), sum(numels)


def _numels(network: Network) -> list[int]:
    tensors = model_work(network.model).tensors
    if network.labels is None:
        return [spec.numel for spec in tensors]
    head = ("classifier.weight", "classifier.bias")
    return [spec.numel // spec.shape[0] * network.labels if spec.name in head else spec.numel for spec in tensors]
