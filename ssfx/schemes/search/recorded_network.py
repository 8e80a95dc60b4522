"""A network as records of quality know it: its family, its optimizer, and how far each method compresses it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ssfx.compressors import build
from ssfx.perf_model.operator_counts import counted, model_work
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile

FAMILIES = ("conv", "lstm", "transformer", "vision transformer")
READERS = ("lstm", "transformer")
"""Families whose batch is counted in tokens; that of others in images."""
_ATTENTION = ("attn", "attention", "qkv", "q_proj", "in_proj_weight")
_RECURRENT = "weight_hh"
_EXPERTS = "expert"
_BESIDE_PIXELS = (
    "modulation",
    "adaln",
    "time_emb",
    "timestep",
    "t_embed",
    "wte",
    "embed_tokens",
    "token_emb",
    "word_emb",
)
"""Names of what diffuses, or reads text too: no classifier of images has them."""
_KERNEL_DIMS = 4
"""Dimensions of the weights of a convolution over images. Experts of a transformer are stacked in three."""
_COLOURS = (1, 3)
_NONE = "networks of no recorded family"


def family_of(tensors: Sequence[TensorSpec], attends: bool = False) -> str:
    """Return which of FAMILIES the tensors are of, "" where they are of none or of several.

    Names of attention, or that it `attends` by its operators, make a transformer; a single kernel over pixels, its
    patches, makes it one of images. None was
    recorded with experts, of sound, of text and images, or that diffuses: these are of no family. torch's LSTM has
    weight_hh of (4 h, h); other networks with kernels over images are convolutional. An LSTM with attention has none.
    """
    attends = attends or any(word in spec.name.lower() for spec in tensors for word in _ATTENTION)
    recurrent = [spec.shape for spec in tensors if _RECURRENT in spec.name]
    kernels = [spec.shape for spec in tensors if len(spec.shape) == _KERNEL_DIMS]
    if recurrent:
        gated = all(len(shape) == 2 and shape[0] == 4 * shape[1] for shape in recurrent)
        return "lstm" if gated and not attends and not kernels else ""
    if attends:
        experts = any(_EXPERTS in spec.name.lower() for spec in tensors)
        stacked = [spec.shape for spec in tensors if sum(size > 1 for size in spec.shape) > 2]
        if experts or not stacked:
            return "" if experts else "transformer"
        beside = any(word in spec.name.lower() for spec in tensors for word in _BESIDE_PIXELS)
        patches = stacked == kernels and len(kernels) == 1 and kernels[0][1] in _COLOURS
        return "vision transformer" if patches and not beside else ""
    return "conv" if kernels else ""


def family_in(profile: Profile) -> str:
    """Return the family that was said of a profile, or which its tensors and operators are of."""
    return profile.family or family_of(profile.tensors, profile.attends)


def rank_batch(profile: Profile) -> int | None:
    """Return the tokens of a rank and step, or the samples of what reads no text; None where that is not known.

    Tokens of a sample are known of shipped models: the file of a user's own need not be where its profile is.
    """
    if not profile.batch_size or family_in(profile) not in READERS:
        return profile.batch_size or None
    return profile.batch_size * model_work(profile.model).sample_tokens if profile.model in counted() else None


def batch_text(family: str, batch: int) -> str:
    """Return a batch of tokens, of families that read them, or of images."""
    return f"{batch:,} {'tokens' if family in READERS else 'images'}"


def in_words(family: str, optimizer: str, clipped: bool | None = None) -> str:
    """Return a family, an optimizer and whether it clips for people."""
    what = f"{family}s" if family.endswith("transformer") else f"{family} networks" if family else _NONE
    return f"{what} with {optimizer or 'an unknown optimizer'}{' and clipping' if clipped else ''}"


@dataclass(frozen=True, eq=False)
class Network:
    """`family` is one of FAMILIES, `optimizer` that of the training; "" where it is not known.

    `ranks`: how many train it, with a `batch` of so many tokens or images each; None: as in the records. `clipped`:
    whether gradients are; None: not known.
    """

    family: str
    optimizer: str
    tensors: tuple[TensorSpec, ...]
    ranks: int | None = None
    batch: int | None = None
    clipped: bool | None = None
    _known: dict[tuple[str, float, str], float] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, profile: Profile, ranks: int | None = None) -> Network:
        """Return the network of a profile on so many ranks."""
        return cls(family_in(profile), profile.optimizer, profile.tensors, ranks, rank_batch(profile))

    def compression(self, compressor: str, density: float, calls: str) -> float:
        """Return the bytes of the gradient over those that a rank sends if the method sends every tensor.

        `calls`: "each" tensor has a compressor call of its own, or they are "joint" in one.
        """
        key = (compressor, density, calls)
        if key not in self._known:
            one, shapes = build(compressor), [spec.shape for spec in self.tensors]
            alike = Counter((shape,) for shape in shapes) if calls == "each" else {tuple(shapes): 1}
            sent = sum(number * one.layout_of(group, density).nbytes for group, number in alike.items())
            self._known[key] = sum(spec.nbytes for spec in self.tensors) / sent if sent else 1.0
        return self._known[key]

    @property
    def text(self) -> str:
        """The network in words."""
        return in_words(self.family, self.optimizer)
