"""The registries that find models and data sets, those of the user's own among them; no torch at import time."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any

from ssfx.core.errors import ConfigError, RunError
from ssfx.core.registry import Registry
from ssfx.core.spec import Catalog, Registered, name_of
from ssfx.core.user_code import is_own, own_code
from ssfx.lab.workloads.declarations import ANY as ANY
from ssfx.lab.workloads.declarations import Dataset as Dataset
from ssfx.lab.workloads.declarations import Model as Model
from ssfx.lab.workloads.on_disk.base import SampledDataset
from ssfx.perf_model.saved_profiles import is_saved, saved_profile

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ssfx.lab.workloads.metrics.tally import Tally


SAMPLED = 64
"""Samples that the fingerprint of a data set of unknown nature looks at."""


@dataclass(frozen=True)
class OwnName:
    """Which function."""

    function: str = ""


class OwnDataset(SampledDataset):
    """What the user's `make(train)` returns: samples (input, target) by number, or None where nothing is held out.

    A target that is one number is a class; of any other the mean loss is measured, as perplexity.
    """

    name = "own"
    summary = "a function of yours"
    source = "you"
    inputs = ANY

    def __init__(self, options: OwnName) -> None:
        super().__init__(options)
        self.name = options.function  # type: ignore[misc]

    def samples(self, train: bool) -> Any:
        """Return the training or the held-out samples; ConfigError when the function fails, RunError without any."""
        code = own_code(self.options.function)
        function = code.load()
        try:
            found = function(train)
            first = None if found is None else found[0]
        except Exception as error:
            raise ConfigError(f"{code.name} fails with train={train}: {type(error).__name__}: {error}") from error
        if found is None:
            raise RunError(f"{code.name} returns nothing for train={train}")
        if not isinstance(first, tuple | list) or len(first) != 2:
            shown = " ".join(shortened(first).split())
            raise ConfigError(f"{code.name} must give samples (input, target), and its first is {shown}")
        return found

    def fingerprint(self) -> str:
        """Return the hash of the function's file, of the number of samples, and of some of them."""
        samples = self.samples(train=True)
        found = hashlib.sha256(f"{self.options.function} {len(samples)}".encode())
        for number in range(0, len(samples), max(1, len(samples) // SAMPLED)):
            found.update(repr(samples[number]).encode())
        return found.hexdigest()[:16]

    def tally(self, model: nn.Module, rank: int, world_size: int) -> Tally:
        """Return the sums over this rank's share; of an empty one those of the first sample, each 0."""
        mine = super().tally(model, rank, world_size)
        return mine or dict.fromkeys(super().tally(model, 0, len(self.samples(train=False))), 0.0)

    def score(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tally:
        """Return the sums of top1, or of perplexity."""
        from torch.nn import functional

        from ssfx.lab.workloads.objective import logits

        out = logits(model, inputs).flatten(end_dim=-2).float()
        if targets.ndim == 1:
            return {"right1": float((out.argmax(-1) == targets).sum()), "samples": float(len(targets))}
        nats = functional.cross_entropy(out, targets.flatten(), reduction="sum")
        return {"nats": float(nats), "tokens": float((targets != -100).sum())}


BATCH_SIZE = 32
"""Of a model that says nothing else."""


class Models(Registry[Model]):
    """The registered models, and every function that returns a network."""

    def __contains__(self, name: str) -> bool:
        if is_saved(name):
            return bool(saved_profile(name))
        return bool(own_code(name)) if is_own(name) else super().__contains__(name)

    def __getitem__(self, name: str) -> Model:
        """Return the model called `name`; ConfigError with the nearest name, or for a function that is not there."""
        if not is_own(name) and not is_saved(name):
            return super().__getitem__(name)
        if is_saved(name):
            batch_size = saved_profile(name).batch_size or 1
            return Model(name, "a saved profile", ANY, lambda: _no_network(name), batch_size, name)
        code = own_code(name)
        return Model(
            name=code.name,
            summary=f"{code.function} of {code.path}",
            inputs=ANY,
            build=lambda: built(name),
            batch_size=code.says.get("batch_size", BATCH_SIZE),
            source=str(code.path),
        )


def network(name: str, /, **options: Any) -> Callable[[], nn.Module]:
    """Return what makes `module.Class` of workloads/nets with `options`; torch is imported when it is called."""
    module, _, function = name.partition(".")

    def build() -> nn.Module:
        made: nn.Module = getattr(importlib.import_module(f"ssfx.lab.workloads.nets.{module}"), function)(**options)
        return made

    return build


def _no_network(name: str) -> nn.Module:
    raise ConfigError(f"{name} is a profile, which has no network to train; use it with ssfx plan, simulate or advise")


def built(name: str) -> nn.Module:
    """Return the network that an own function returns; ConfigError when it fails or returns something else."""
    from torch import nn

    code = own_code(name)
    function = code.load()
    try:
        model = function()
    except Exception as error:
        raise ConfigError(f"{code.name} fails: {type(error).__name__}: {error}") from error
    if isinstance(model, tuple) and model:
        model = model[0]  # it comes with a batch, for ssfx profile
    if not isinstance(model, nn.Module):
        raise ConfigError(f"{code.name} must return a torch.nn.Module, and returns a {type(model).__name__}")
    return model


class Datasets(Catalog[Dataset]):
    """The registered data sets, and every function that returns a map-style one."""

    def __contains__(self, name: str) -> bool:
        return bool(own_code(name)) if is_own(name) else super().__contains__(name)

    def __getitem__(self, name: str) -> Registered[Dataset]:
        """Return the data set called `name`; see Models."""
        if not is_own(name):
            return super().__getitem__(name)
        return Registered(OwnDataset, OwnName(own_code(name).name))

    def build(self, spec: str) -> Dataset:
        """Return the data set of a spec; that of a function whose file has changed is another one."""
        return super().build(own_code(spec).name if _is_function(spec) else spec)

    def canonical(self, spec: str, options: Mapping[str, Any] | None = None) -> str:
        """Return `spec` with `options` applied; an own function has none, and the digest of its file instead."""
        if not _is_function(spec):
            return super().canonical(spec, options)
        return own_code(spec).name

    def _resolve(self, spec: str, overrides: Mapping[str, Any]) -> tuple[Registered[Dataset], Any]:
        if not _is_function(spec):
            return super()._resolve(spec, overrides)
        entry = self[spec]
        return entry, entry.options


def _is_function(spec: str) -> bool:
    return is_own(name_of(spec))


models: Models = Models("model", "ssfx.lab.workloads.catalog")
_OF_DATA = "digits, cifar10, imagenet of images, wikitext2, stdlib_text of text, squad, synthetic of any shape"
datasets: Datasets = Datasets("dataset", "ssfx.lab.workloads.catalog", nearest_of=_OF_DATA)


def dataset_spec(model: str, node: Mapping[str, Any]) -> str:
    """Return the spec of the data set `node` (its name and its options), that of `model` where it is synthetic."""
    options = {key: value for key, value in node.items() if key != "name"}
    name = models[model].name
    return datasets.canonical(node["name"], {**options, "model": name} if node["name"] == "synthetic" else options)
