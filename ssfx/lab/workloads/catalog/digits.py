"""Handwritten digits: small enough to ship with scikit-learn, real enough to learn."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING

from ssfx.core.errors import RunError
from ssfx.core.lazy import numpy as np
from ssfx.core.lazy import torch
from ssfx.core.spec import NoOptions
from ssfx.lab.workloads.base import Dataset, datasets
from ssfx.lab.workloads.metrics.tally import added
from ssfx.lab.workloads.stream import SampleStream

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from ssfx.lab.workloads.metrics.tally import Tally
    from ssfx.lab.workloads.stream import Batch

_KNOWN_SHA256 = "65e5b4619795efb40c1082f4c350c049e4ad552200d369b6ae99e21eef5e72c5"
_REPAIR = "reinstall it: pip install --force-reinstall scikit-learn"
_SCALE = 4  # 8x8 to 32x32
_EVALUATION_BATCH = 128


@datasets.register()
class Digits(Dataset):
    """1797 digits of 8x8 pixels, each pixel repeated to 32x32, normalised by mean and deviation of the training part.

    A digit is held out when the first byte of the SHA-256 of its pixels is below 51 (one fifth), so that the split
    depends on nothing else and equal pictures are on one side.
    """

    name = "digits"
    summary = "scikit-learn's 1797 handwritten digits as 1x32x32 images, a fifth held out; top1, top5"
    source = "sklearn.datasets.load_digits (UCI, Alpaydin and Kaynak 1998)"
    inputs = "gray images 1x32x32 of 10 classes"

    def __init__(self, options: NoOptions = NoOptions()) -> None:  # noqa: B008 (frozen)
        self.options = options

    @cached_property
    def _raw(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        from sklearn.datasets import load_digits

        try:
            images, labels = load_digits(return_X_y=True)
        except (OSError, ValueError) as error:
            raise RunError(f"scikit-learn's digits cannot be read ({error}); {_REPAIR}") from error
        images, labels = images.astype(np.uint8), labels.astype(np.int64)
        found = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
        if found != _KNOWN_SHA256:
            raise RunError(
                f"scikit-learn's digits are not the ones ssfx knows (SHA-256 {found[:16]}, expected "
                f"{_KNOWN_SHA256[:16]}); {_REPAIR}"
            )
        return images, labels

    @cached_property
    def _held_out(self) -> NDArray[np.bool_]:
        images, _ = self._raw
        return np.array([hashlib.sha256(image.tobytes()).digest()[0] < 51 for image in images])

    @cached_property
    def _images(self) -> torch.Tensor:
        images, _ = self._raw
        train = images[~self._held_out]
        pixels = ((images - train.mean()) / train.std()).astype(np.float32).reshape(-1, 1, 8, 8)
        return torch.from_numpy(pixels.repeat(_SCALE, axis=2).repeat(_SCALE, axis=3))

    @cached_property
    def _labels(self) -> torch.Tensor:
        return torch.from_numpy(self._raw[1])

    def fingerprint(self) -> str:
        """Return the hash of pixels, labels and split."""
        images, labels = self._raw
        content = b"".join((images.tobytes(), labels.tobytes(), self._held_out.tobytes()))
        return hashlib.sha256(content).hexdigest()[:16]

    def train_loader(
        self, rank: int, world_size: int, batch_size: int, seed: int, *, device: str = "cpu", workers: int = 0
    ) -> SampleStream:
        """Return batches of images [B, 1, 32, 32] float32 and labels [B] int64."""
        train = np.flatnonzero(~self._held_out)

        def gather(samples: NDArray[np.int64]) -> Batch:
            chosen = train[samples]
            return self._images[chosen], self._labels[chosen]

        return SampleStream(
            gather, num_samples=len(train), rank=rank, world_size=world_size, batch_size=batch_size, seed=seed
        )

    def tally(self, model: nn.Module, rank: int, world_size: int) -> Tally:
        """Return the sums of top1 and top5 over every world_size-th held-out digit."""
        from ssfx.lab.workloads.metrics.networks import classes_tally
        from ssfx.lab.workloads.objective import evaluating, logits

        share = np.flatnonzero(self._held_out)[rank::world_size]
        total: Tally = {"right1": 0.0, "samples": 0.0, "right5": 0.0}
        with evaluating(model) as device:
            for start in range(0, len(share), _EVALUATION_BATCH):
                chosen = share[start : start + _EVALUATION_BATCH]
                found = classes_tally(logits(model, self._images[chosen].to(device)), self._labels[chosen].to(device))
                total = added(total, found)
        return total
