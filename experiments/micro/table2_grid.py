"""MiCRO Table II: models, data sets, densities and training settings, beside what conf/ has for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.configured import cluster, epochs, experiment, judge_setup, workload
from experiments.common.evaluation.judging import complete, number
from experiments.common.figures.tables import draw_table
from ssfx.core.rows import Row

NAME = "micro.table2"
TITLE = "Settings of every model"
COMMAND = f"ssfx figures {NAME}"

MODELS = {"ResNet-18": "resnet18_cifar10", "GoogLeNet": "googlenet_cifar10", "SENet-18": "senet18_cifar10"}
SETTINGS = {
    "n": "workers", "bl": "batch per\nworker", "ne": "epochs", "d1": "first\ndensity", "d2": "second\ndensity",
    "nds": "data sets",
}  # fmt: skip


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the paper's table with our settings beside its own."""
    found = {one.claim: one for one in judge(rows)}
    table = []
    for name, key in ((name, name.lower().replace("-", "")) for name in MODELS):
        line: dict[str, str | float] = {"model": name}
        for setting in SETTINGS:
            claim = f"{NAME}.{key}.{setting}"
            line |= {f"paper_{setting}": number(claim), setting: found[claim].ours or "-"}
        table.append(line)
    columns = {"model": "model"}
    for setting, heading in SETTINGS.items():
        columns |= {f"paper_{setting}": "paper:\n" + heading, setting: "ssfx"}
    return draw_table(NAME, TITLE, columns, table, out, origin="From the configuration of ssfx (conf/); no run.")


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every setting."""
    here, why = {}, {}
    simulated = experiment("micro_clusters")["experiment"]["sweep"]
    for name, work in MODELS.items():
        key = f"{NAME}.{name.lower().replace('-', '')}"
        here[f"{key}.n"] = lambda: float(cluster("micro").world_size)
        here[f"{key}.bl"] = lambda work=work: float(workload(work)["batch_size"])  # type: ignore[misc]
        first, second = simulated["density"]
        here[f"{key}.d1"] = lambda first=first: float(first)  # type: ignore[misc]
        here[f"{key}.d2"] = lambda second=second: float(second)  # type: ignore[misc]
        here[f"{key}.ne"] = lambda work=work: epochs(work)  # type: ignore[misc]
        why[f"{key}.nds"] = "a simulated step does not depend on the data set; CIFAR-100 adds 90 outputs to each model"
    return complete(NAME, judge_setup(NAME, here, why), COMMAND)
