"""What one sample of every model is: shapes, vocabulary and kind of targets, from which synthetic batches are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ssfx.core.errors import ConfigError, unknown
from ssfx.core.lazy import torch
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


def _digits() -> Sample:
    return Sample((1, 32, 32), "sgd", "class", 10)


def _cifar(num_classes: int) -> Sample:
    return Sample((3, 32, 32), "sgd", "class", num_classes)


def _imagenet(optimizer: str = "sgd") -> Sample:
    return Sample((3, 224, 224), optimizer, "class", 1000)


def _text(seq_len: int, optimizer: str, vocabulary: int) -> Sample:
    return Sample((seq_len,), optimizer, "next", vocabulary)


SAMPLES = {
    **dict.fromkeys(("resnet_tiny", "vgg_tiny", "resnet_mini", "vgg_mini", "resnet152_digits"), _digits()),
    **dict.fromkeys(("resnet50", "resnet101", "resnet152", "vgg16", "vgg19"), _imagenet()),
    "vit_large": _imagenet("adamw"),
    **dict.fromkeys(
        ("resnet18_cifar10", "resnet50_cifar10", "resnet101_cifar10", "vgg16_cifar10", "googlenet_cifar10",
         "senet18_cifar10", "resnet20_cifar10", "resnet56_cifar10", "vgg_small_cifar10"), _cifar(10)
    ),
    **dict.fromkeys(
        ("resnet50_cifar100", "resnet152_cifar100", "vgg16_cifar100", "vgg19_cifar100", "densenet40_cifar100"),
        _cifar(100),
    ),
    "vit_huge": _imagenet("adamw"),
    "vit_small_cifar10": Sample((3, 32, 32), "adamw", "class", 10),
    "dit_xl": Sample((4, 32, 32), "adamw", "class", 1000),
    "whisper_large": Sample((80, 3000), "adamw", "transcript", 51865),
    "llama3_8b": _text(8192, "adamw", 128256),
    **dict.fromkeys(("qwen3_8b", "qwen3_1_7b", "qwen3_30b_a3b"), _text(4096, "adamw", 151936)),
    "olmoe_1b_7b": _text(4096, "adamw", 50304),
    "gpt_oss_20b": _text(4096, "adamw", 201088),
    "lstm_tiny": _text(128, "sgd", 256),
    "lstm_mini": _text(32, "adam", 256),
    "lstm_wikitext2_small": _text(16, "adam", 4096),
    "gpt2_small_wikitext2": _text(16, "adamw", 4096),
    "gpt2_mini": _text(32, "adamw", 256),
    "bert_mini": Sample((32,), "adamw", "span", 113),
    "gpt2_tiny": _text(128, "adamw", 256),
    "bert_large_narrow": Sample((128,), "adamw", "span", 257),
    **dict.fromkeys(("bert_base", "bert_large"), Sample((384,), "adamw", "span", 30522)),
    **dict.fromkeys(
        ("bert_base_pretraining", "bert_large_pretraining"), Sample((64,), "adamw", "pretraining", 30522)
    ),
    **dict.fromkeys(("gpt2", "gpt2_large", "gpt2_xl"), _text(1024, "adamw", 50257)),
    "bloom_3b": _text(1024, "adamw", 250880),
    "lstm_wikitext2": _text(70, "adam", 33278),
    "lstm_650": _text(30, "sgd", 28869),
    **dict.fromkeys(("gnmt8", "gnmt16"), Sample((2, 50), "adam", "translation", 32317)),
    "mask_rcnn": Sample((3, 800, 1216), "sgd", "boxes", 91),
}  # fmt: skip
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
