"""What one sample of every model is: shapes, vocabulary and kind of targets, from which synthetic batches are made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from ssfx.core.errors import ConfigError, unknown
from ssfx.core.lazy import torch
from ssfx.core.paths import data_dir
from ssfx.core.user_code import is_own, own_code

if TYPE_CHECKING:
    from torch import Tensor

Targets = Literal["class", "next", "span", "pretraining", "translation", "transcript", "boxes"]


TRANSCRIPT = 448
"""Tokens of a transcript: Whisper's most."""


@dataclass(frozen=True)
class Sample:
    """What one sample of a model is, and who updates the model.

    shape: of an image, of a sequence of tokens, or of a source and a target sequence.
    optimizer: the customary one.
    targets: a class; the next token everywhere; the first and last token of an answer; masked tokens and whether two
        sentences follow each other; the next token of the target sequence, or of a transcript; or boxes with classes.
    num_values: how many classes there are, or how many different tokens; 0 where only work is counted.
    """

    shape: tuple[int, ...]
    optimizer: str
    targets: Targets = "class"
    num_values: int = 0

    def __str__(self) -> str:
        size = "x".join(map(str, self.shape))
        if self.targets == "transcript":
            return f"{size} spectrograms with {TRANSCRIPT} tokens"
        return f"{size} tokens" if self.of_tokens else f"{size} images"

    @property
    def of_tokens(self) -> bool:
        """Whether a sample is whole numbers, not pixels."""
        return len(self.shape) == 1 or self.targets == "translation"

    def batch(self, batch_size: int) -> Tensor:
        """Return inputs on the meta device, which has shapes and no values."""
        kind = torch.int64 if self.of_tokens else torch.float32
        return torch.zeros(batch_size, *self.shape, dtype=kind, device="meta")


@cache
def networks() -> Mapping[str, Mapping[str, Any]]:
    """Return what data/networks.json says of each model: how it is made, what it takes, its size.

    `network` is a function of `nets` and its arguments, `sample` the fields of Sample, `size` trainable parameters and
    tensors, tied ones once, `why` a remark.
    """
    return {one["name"]: one for one in json.loads((data_dir() / "networks.json").read_text(encoding="utf-8"))}


SAMPLES = {
    name: Sample(**{**one["sample"], "shape": tuple(one["sample"]["shape"])}) for name, one in networks().items()
}
"""Sequence lengths and images of the papers and of the authors' scripts; 30 is PowerSGD's, 50 GNMT's longest sentence.
Mask R-CNN's images have the shorter side that its authors scale COCO to."""


def sample_of(model: str) -> Sample:
    """Return what a sample of `model` is; ConfigError when it is unknown, or an own model states what cannot be."""
    if not is_own(model):
        if model not in SAMPLES:
            raise ConfigError(f"model {model!r} declares no sample, so there is no synthetic data for it")
        return SAMPLES[model]
    code = own_code(model)
    shape = code.says.get("sample")
    if not isinstance(shape, tuple) or not shape or not all(isinstance(n, int) and n > 0 for n in shape):
        raise ConfigError(
            f"{code.path} must say what a sample of {code.function} is: {code.function}.sample = (3, 32, 32) for "
            "images, or (128,) for so many tokens"
        )
    targets = code.says.get("targets", "next" if len(shape) == 1 else "class")
    if targets not in get_args(Targets):
        raise unknown(f"{code.function}.targets in {code.path}", str(targets), get_args(Targets))
    values = code.says.get("num_values", 2)
    if not isinstance(values, int) or values < 2:
        raise ConfigError(
            f"{code.function}.num_values in {code.path} must be a whole number of at least 2, got {values}"
        )
    return Sample(shape, str(code.says.get("optimizer", "sgd")), targets, values)
