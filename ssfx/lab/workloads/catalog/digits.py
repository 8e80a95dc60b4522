"""Handwritten digits: small enough to ship with scikit-learn, real enough to learn."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING

from ssfx.core.errors import RunError
from ssfx.core.lazy import numpy as np
from ssfx.core.lazy import torch
from ssfx.lab.workloads.base import datasets
from ssfx.lab.workloads.gathered import GatheredDataset
from ssfx.lab.workloads.metrics.tally import CLASSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ssfx.lab.workloads.stream import Batch

_KNOWN_SHA256 = "65e5b4619795efb40c1082f4c350c049e4ad552200d369b6ae99e21eef5e72c5"
_REPAIR = "reinstall it: pip install --force-reinstall scikit-learn"
_SCALE = 4  # 8x8 to 32x32


@datasets.register()
class Digits(GatheredDataset):
    """1797 digits of 8x8 pixels, each pixel repeated to 32x32, normalised by mean and deviation of the training part.

    A digit is held out when the first byte of the SHA-256 of its pixels is below 51 (one fifth), so that the split
    depends on nothing else and equal pictures are on one side.
    """

    name = "digits"
    summary = "scikit-learn's 1797 handwritten digits as 1x32x32 images, a fifth held out; top1, top5"
    source = "sklearn.datasets.load_digits (UCI, Alpaydin and Kaynak 1998)"
    inputs = "gray images 1x32x32 of 10 classes"
    sums = CLASSES
    evaluation_batch = 128

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

    def fingerprint(self) -> str:
        """Return the hash of pixels, labels and split."""
        images, labels = self._raw
        content = b"".join((images.tobytes(), labels.tobytes(), self._held_out.tobytes()))
        return hashlib.sha256(content).hexdigest()[:16]

    def numbers(self, train: bool) -> NDArray[np.int64]:
        """Return which digits are in a part."""
        return np.flatnonzero(self._held_out != train)

    def gather(self, train: bool, numbers: NDArray[np.int64]) -> Batch:
        """Return images [B, 1, 32, 32] float32 and labels [B] int64."""
        return self._images[numbers], torch.from_numpy(self._raw[1][numbers])
