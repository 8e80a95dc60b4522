"""The sparsifiers of the MiCRO paper on its cluster, and scheme=auto beside them, from simulated rows."""

from collections.abc import Sequence

from experiments.common.evaluation.configured import conf
from experiments.common.evaluation.row_steps import auto_at, rows_by_calibration
from experiments.common.figures.auto import LABEL
from experiments.common.validation.published_steps import PaperSetting, Steps, Timed, method
from ssfx.core.rows import Row

MODELS = {"resnet18_cifar10": "ResNet-18", "googlenet_cifar10": "GoogLeNet", "senet18_cifar10": "SENet-18"}
LABELS = {"topk": "Top-k", "cltk": "CLT-k", "hard_threshold": "hard\nthreshold", "micro": "MiCRO"}
DENSITIES: tuple[float, ...] = tuple(conf("experiment", "micro_clusters")["experiment"]["sweep"]["density"])
WORKERS = {
    2: (("nodes", 1), ("devices_per_node", 2)),
    4: (("nodes", 1), ("devices_per_node", 4)),
    8: (("nodes", 1),),
    16: (),
}


def timed(name: str, model: str, density: float, workers: int = 16) -> Timed:
    """Return one sparsifier in one setting of the paper."""
    batch = int(conf("workload", model)["batch_size"])
    return method(name, density=density), PaperSetting("micro", model, batch, WORKERS[workers])


def iteration_s(steps: Steps, name: str, model: str, density: float) -> float:
    """Return the iteration time of a sparsifier on all 16 workers."""
    return steps.step(*timed(name, model, density)).iteration_s


def panels(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, Row]]]:
    """Return setting -> sparsifier -> calibration -> row, for stacked parts; the last is auto at the same density."""
    found = {}
    for model, title in MODELS.items():
        for density in DENSITIES:
            places = {label: timed(name, model, density) for name, label in LABELS.items()}
            _, at = places[LABELS["topk"]]
            places[LABEL] = auto_at(at, density=density)
            shown = {label: rows_by_calibration(rows, place) for label, place in places.items()}
            found[f"{title}, density {density:g}"] = shown
    return found
