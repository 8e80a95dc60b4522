"""The work of one training step of a model, in FLOPs and bytes: what it takes on any device, at any batch size.

Work is attributed to tensors: of the backward pass, what is done between the gradient of one tensor and of the next;
of the forward pass, what is done from the use of one tensor to the use of the next. The harness counts it.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from math import inf, prod
from pathlib import Path

from ssfx.core.errors import ConfigError, RunError, unknown
from ssfx.core.files import loads, read, set_aside
from ssfx.core.paths import cache_dir, data_dir
from ssfx.core.user_code import is_own, own_code
from ssfx.planning.plan import TensorSpec

COLUMNS = (
    "kernels",
    "conv_flops",
    "matmul_flops",
    "conv_bytes",
    "matmul_bytes",
    "other_bytes",
    "conv_bytes_fixed",
    "matmul_bytes_fixed",
    "other_bytes_fixed",
)
"""What a row of work holds: per sample, except the kernels and what is `fixed`, which the batch size leaves alone."""
NOT_COUNTED = {"mask_rcnn": "the boxes it finds decide its work; ssfx run model=mask_rcnn trains it on synthetic boxes"}
"""Models of `ssfx list models` whose operators cannot be counted, with why, and what works."""


@dataclass(frozen=True)
class ModelWork:
    """What one training step of a model takes, on any device."""

    model: str
    """Its name."""
    inputs: str
    """What a sample is."""
    batch_size: int
    """The customary one."""
    optimizer: str
    """The customary one."""
    tensors: tuple[TensorSpec, ...]
    """Trainable tensors in backward order."""
    rows: tuple[tuple[float, ...], ...]
    """Counts of one sample, each different one once; columns are COLUMNS."""
    forward: tuple[int, ...]
    """For each tensor the number of its row in forward."""
    backward: tuple[int, ...]
    """The same in backward."""
    activation_bytes: int
    """What autograd keeps of one sample from forward for backward."""
    attention_bytes: int
    """How much of it are matrices of scores, which fused attention does not keep."""
    versions: dict[str, str]
    """What counted it."""
    recompute: bool = False
    """Whether layers customarily keep their inputs alone and compute their forward again in backward."""
    recompute_bytes: int = 0
    """What is kept of one sample then: the inputs of all layers, all of one layer, and what is outside of layers."""

    @property
    def sample_tokens(self) -> int:
        """Tokens of a sample; 1 where it is something else than text."""
        size, _, what = self.inputs.partition(" ")
        return prod(map(int, size.split("x"))) if what == "tokens" else 1

    @property
    def numel(self) -> int:
        """Number of trainable parameters; a tied one counts once."""
        return sum(spec.numel for spec in self.tensors)

    def flops(self, batch_size: int = 1) -> tuple[float, float]:
        """Return the FLOPs of convolutions and matrix products in (forward, backward); a multiply-add is two."""
        _, conv, matmul, *_ = range(len(COLUMNS))
        forward, backward = (
            sum(self.rows[i][conv] + self.rows[i][matmul] for i in which) for which in (self.forward, self.backward)
        )
        return forward * batch_size, backward * batch_size

    def kept_bytes(self, *, fused_attention: bool = True) -> int:
        """Return what is kept of one sample for backward, in float32, as the model is customarily trained."""
        if self.recompute:
            return self.recompute_bytes
        return self.activation_bytes - (self.attention_bytes if fused_attention else 0)

    def to_json(self) -> str:
        """Return the work as JSON text, one line for each tensor and row."""
        head = {
            "model": self.model,
            "inputs": self.inputs,
            "batch_size": self.batch_size,
            "optimizer": self.optimizer,
            "activation_bytes": self.activation_bytes,
            "attention_bytes": self.attention_bytes,
            "versions": self.versions,
            "columns": COLUMNS,
            **({"recompute": self.recompute, "recompute_bytes": self.recompute_bytes} if self.recompute else {}),
        }
        tensors = [
            [spec.name, spec.shape, forward, backward]
            for spec, forward, backward in zip(self.tensors, self.forward, self.backward, strict=True)
        ]
        lists = "".join(f',\n"{key}":[\n{_lines(rows)}\n]' for key, rows in (("rows", self.rows), ("tensors", tensors)))
        return json.dumps(head, separators=(",", ":"))[:-1] + lists + "}\n"

    @classmethod
    def from_json(cls, text: str) -> ModelWork:
        """Return the work that `to_json` wrote; ConfigError for other columns."""
        raw = loads(text)
        if tuple(raw["columns"]) != COLUMNS:
            raise ConfigError(f"the work of model {raw['model']} was counted by another version of ssfx")
        names, shapes, forward, backward = zip(*raw["tensors"], strict=True)
        if not all(0 <= count < inf for row in raw["rows"] for count in row):
            raise ValueError("counts must be finite and not negative")
        return cls(
            raw["model"],
            raw["inputs"],
            raw["batch_size"],
            raw["optimizer"],
            tuple(TensorSpec(name, tuple(shape)) for name, shape in zip(names, shapes, strict=True)),
            tuple(map(tuple, raw["rows"])),
            forward,
            backward,
            raw["activation_bytes"],
            raw["attention_bytes"],
            raw["versions"],
            raw.get("recompute", False),
            raw.get("recompute_bytes", 0),
        )


def work_dir() -> Path:
    """Directory of the shipped work of models."""
    return data_dir() / "models"


def counted() -> list[str]:
    """Return the models whose work is shipped, sorted."""
    return sorted(path.stem for path in work_dir().glob("*.json"))


def is_counted(model: str) -> bool:
    """Return whether `model_work` can have the work of `model`: it is shipped, or the model is the user's own."""
    return is_own(model) or model in counted()


def model_work(model: str) -> ModelWork:
    """Return the work of `model`: shipped, or counted now if it is the user's own and was not counted before.

    ConfigError with the nearest model that has one, or with why an own model cannot be counted.
    """
    if is_own(model):
        return _own_work(model)
    path = work_dir() / f"{model}.json"
    if model in NOT_COUNTED:
        raise ConfigError(f"{model} has no profile to plan or simulate by: {NOT_COUNTED[model]}")
    if not path.exists():
        raise unknown("model", model, counted())
    return _read(path)


@cache
def _own_work(model: str) -> ModelWork:
    """Return the work of an own model, counted in a process of its own: counting imports torch, and this may not."""
    code = own_code(model)
    key = f"{code.name} {code.path} {metadata.version('torch')} {COLUMNS}"
    path = cache_dir() / "models" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    if path.exists():
        with suppress(RunError):
            return _read(path)
        set_aside(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "ssfx.lab.workloads.own_batch", code.name, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        why = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise ConfigError(f"the work of {model} cannot be counted: {why}")
    return _read(path)


@cache
def _read(path: Path) -> ModelWork:
    return read(path, ModelWork.from_json)


def _lines(rows: Sequence[object]) -> str:
    return ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
