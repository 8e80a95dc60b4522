"""The registries that find models and data sets, those of the user's own among them; no torch at import time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ssfx.lab.workloads.declarations import ANY as ANY
from ssfx.lab.workloads.declarations import Dataset as Dataset
from ssfx.lab.workloads.declarations import Model as Model
from ssfx.lab.workloads.own import Datasets, Models

models: Models = Models("model", "ssfx.lab.workloads.catalog")
datasets: Datasets = Datasets("dataset", "ssfx.lab.workloads.catalog")


def dataset_spec(model: str, node: Mapping[str, Any]) -> str:
    """Return the spec of the data set `node` (its name and its options), that of `model` where it is synthetic."""
    options = {key: value for key, value in node.items() if key != "name"}
    name = models[model].name
    return datasets.canonical(node["name"], {**options, "model": name} if node["name"] == "synthetic" else options)
