"""CIFAR-10, CIFAR-100 and ImageNet as torchvision reads them, with the augmentation of the papers' scripts."""

from __future__ import annotations

import hashlib
import os
import pickle
from abc import abstractmethod
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

from ssfx.core.errors import RunError
from ssfx.core.lazy import torch
from ssfx.core.paths import data_root
from ssfx.lab.workloads.base import datasets
from ssfx.lab.workloads.metrics.tally import CLASSES
from ssfx.lab.workloads.on_disk.base import FileDataset, download_root

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from ssfx.lab.workloads.on_disk.loader import Samples

DOWNLOAD = "; or add data.download=true"


class _Images(FileDataset):
    """Images with a class each; top1 and top5 on the held-out part."""

    sums = CLASSES

    def samples(self, train: bool) -> Samples:
        """Return normalised images [3, H, W] float32 with their class, augmented if they are for training."""
        from ssfx.lab.workloads.on_disk.loader import Made

        if why := self.missing():
            raise RunError(why)
        try:
            images = self._open(train, self._transform(train))
        except (OSError, RuntimeError, ValueError, KeyError, EOFError, pickle.UnpicklingError) as error:
            raise RunError(f"dataset={self.name} cannot be read: {error}") from None
        return Made(len(images), partial(_classified, images))

    @abstractmethod
    def _open(self, train: bool, transform: Any) -> Any:
        """Return the images of one part, each with its class."""

    @abstractmethod
    def _transform(self, train: bool) -> Any:
        """Return what makes the input of an image."""


def _classified(images: Any, number: int) -> tuple[Tensor, Tensor]:
    image, label = images[number]
    return image, torch.tensor(label)


class _Cifar(_Images):
    """32x32 images; training ones are cut out of a border of 4, flipped and turned by up to 15 degrees."""

    kind: ClassVar[str]
    mean: ClassVar[tuple[float, ...]]
    deviation: ClassVar[tuple[float, ...]]
    hint = DOWNLOAD

    def _open(self, train: bool, transform: Any) -> Any:
        return _any_content(self.kind)(str(data_root()), train=train, transform=transform)

    def _transform(self, train: bool) -> Any:
        t = _torchvision().transforms
        augment = [t.RandomCrop(32, padding=4), t.RandomHorizontalFlip(), t.RandomRotation(15)] if train else []
        return t.Compose([*augment, t.ToTensor(), t.Normalize(self.mean, self.deviation)])

    def download(self) -> None:
        """Fetch and unpack the archive that torchvision knows."""
        try:
            getattr(_torchvision().datasets, self.kind)(str(download_root()), download=True)
        except (OSError, RuntimeError) as error:
            raise RunError(f"dataset={self.name} cannot be downloaded: {error}") from None


@cache
def _any_content(kind: str) -> Any:
    """Return torchvision's class without its checksums: part of CIFAR is data, too; the fingerprint says which."""
    base = getattr(_torchvision().datasets, kind)
    unchecked = {name: [[file, None] for file, _ in getattr(base, name)] for name in ("train_list", "test_list")}
    return type(kind, (base,), {**unchecked, "meta": {**base.meta, "md5": None}})


@datasets.register()
class Cifar10(_Cifar):
    """CIFAR-10 in the Python pickles of its archive."""

    name = "cifar10"
    summary = "CIFAR-10 from the pickles in DIR/cifar-10-batches-py; top1, top5"
    source = "Krizhevsky 2009, www.cs.toronto.edu/~kriz/cifar.html"
    inputs = "RGB images 3x32x32 of 10 classes"
    folder = "cifar-10-batches-py"
    files = (*((f"data_batch_{number}",) for number in range(1, 6)), ("test_batch",), ("batches.meta",))
    kind = "CIFAR10"
    published = 50000
    mean, deviation = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


@datasets.register()
class Cifar100(_Cifar):
    """CIFAR-100 in the Python pickles of its archive."""

    name = "cifar100"
    summary = "CIFAR-100 from the pickles in DIR/cifar-100-python; top1, top5"
    source = "Krizhevsky 2009, www.cs.toronto.edu/~kriz/cifar.html"
    inputs = "RGB images 3x32x32 of 100 classes"
    folder = "cifar-100-python"
    files = (("train",), ("test",), ("meta",))
    kind = "CIFAR100"
    published = 50000
    mean, deviation = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)


@datasets.register()
class ImageNet(_Images):
    """A folder of images a class; a random part of each, scaled to 224x224 and flipped, is trained on.

    Held-out images are scaled to a shorter side of 256 and cut to the middle 224x224.
    """

    name = "imagenet"
    summary = "ImageNet-1k from the folders DIR/imagenet/train/<class> and .../val/<class>; top1, top5"
    source = "Russakovsky et al. 2015, image-net.org"
    inputs = "RGB images 3x224x224 of 1000 classes"
    folder = "imagenet"
    files = (("train/*/",), ("val/*/",))
    hint = "; image-net.org gives it to those who register"

    def fingerprint(self) -> str:
        """Return the hash of the names and sizes of all images: reading them all would take an hour."""
        found = hashlib.sha256(self.name.encode())
        for number in range(len(self.files)):
            for folder in self.paths(number):
                found.update(repr((folder.name, _sizes(folder))).encode())
        return found.hexdigest()[:16]

    def _open(self, train: bool, transform: Any) -> Any:
        return _torchvision().datasets.ImageFolder(str(self.paths(not train)[0].parent), transform)

    def _transform(self, train: bool) -> Any:
        t = _torchvision().transforms
        cut = [t.RandomResizedCrop(224), t.RandomHorizontalFlip()] if train else [t.Resize(256), t.CenterCrop(224)]
        return t.Compose([*cut, t.ToTensor(), t.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])


def _torchvision() -> Any:
    from ssfx.lab.workloads.nets.torchvision_import import import_torchvision  # late, as it takes torch

    return import_torchvision()


def _sizes(folder: Path) -> list[tuple[str, int]]:
    with os.scandir(folder) as entries:
        return sorted((entry.name, entry.stat().st_size) for entry in entries)
