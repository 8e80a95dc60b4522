"""What preset=paper means: which workload is the paper's, and how many steps its epochs are on so many ranks."""

from collections.abc import Mapping
from math import ceil
from typing import Any

from ssfx.config.compose import Point
from ssfx.config.file_check import check_file
from ssfx.config.groups import choices
from ssfx.config.overrides import Request
from ssfx.config.schema import Settings
from ssfx.core.component_file import path_of
from ssfx.core.errors import ConfigError
from ssfx.core.numbers import numeric
from ssfx.core.spec import name_of
from ssfx.core.user_code import is_own, own_code
from ssfx.core.yaml_file import read_yaml
from ssfx.perf_model.cluster_file import cluster_of

RATE = 0.001
"""Of an own model's optimizer where none is given: torch's default."""


def with_recipe(request: Request) -> Request:
    """Return `request` with the workload of its model and data set, where preset=paper is asked for without any.

    A request with several values of a key, or without exactly one recipe of training, stays.
    """
    named = [request.get(key, ()) for key in ("preset", "model", "dataset")]
    if {"workload", "experiment"} & set(request) or any(len(values) != 1 for values in named):
        return request
    (preset,), (model,), (dataset,) = named
    found = [name for name, trained in _trained().items() if trained == (model, name_of(str(dataset)))]
    return {**request, "workload": (found[0],)} if preset == "paper" and len(found) == 1 else request


def with_usual_workload(point: Point) -> Point:
    """Return `point`; a model that is named without a workload has its own.

    Of several, that of the data set named, and one that says its epochs before others. Otherwise BERT would have the
    batch and the optimizer of the default, a small network for digits. A model of the user's own has what its file
    says, and RATE where its optimizer is not that of the default.
    """
    if "model" not in point or "workload" in point:
        return point
    if is_own(model := str(point["model"])):
        says = own_code(model).says
        own = {key: says[key] for key in ("batch_size", "optimizer") if key in says} | point
        return own if own.get("optimizer", "sgd") == "sgd" else {"lr": RATE, **own}
    asked = name_of(str(point.get("dataset", "")))
    of_model = [
        (dataset != asked, not epochs, name)
        for name, (model, dataset, epochs) in _files().items()
        if model == point["model"]
    ]
    return {"workload": min(of_model)[-1], **point} if of_model else point


def _trained() -> dict[str, tuple[str, str]]:
    """Return model and data set of every workload that says for how many epochs it was trained."""
    return {name: (model, dataset) for name, (model, dataset, epochs) in _files().items() if epochs}


def _files() -> dict[str, tuple[str, str, bool]]:
    """Return of every workload the model, the data set, and whether it says for how many epochs it trains.

    Read from the files alone: to compose them all takes seconds.
    """
    found = {}
    for name in choices("workload"):
        check_file("workload", name)
        path = path_of("workload", name)
        said = read_yaml(path) if path else {}
        entries = [entry for entry in said.get("defaults") or () if isinstance(entry, Mapping)]
        chosen = {key: value for entry in entries for key, value in entry.items()}
        workload = said.get("workload") or {}
        found[name] = (
            chosen.get("override /model", ""),
            workload.get("trained_on") or name_of(chosen.get("override /dataset", "")),
            "epochs" in workload,
        )
    return found


def with_steps(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` with the number of steps that its workload's epochs take, where it gives none.

    An epoch drops its last, incomplete global batch, as training does. ConfigError for a workload without epochs.
    """
    if config["steps"] is not None:
        return dict(config)
    workload = config["workload"]
    if "epochs" not in workload or config["dataset"]["name"] != workload["trained_on"]:
        model, dataset = config["model"]["name"], config["dataset"]["name"]
        known = _trained()
        nearest = next((name for name, of in known.items() if model in of or dataset in of), "bert_base_squad")
        raise ConfigError(
            f"preset={config['preset']['name']} trains as long as the authors did, which workload={workload['name']} "
            f"does not say for dataset={dataset}; set steps=..., or choose workload={nearest}"
        )
    settings = Settings.of({**config, "steps": config["warmup_steps"] + 1})
    cluster = cluster_of(config["cluster"], settings.world_size, settings.device)
    global_batch = cluster.world_size * settings.batch_size * settings.accumulate
    per_epoch = max(1, numeric(workload["train_samples"]) // global_batch)
    return {**config, "steps": ceil(numeric(workload["epochs"]) * per_epoch)}
