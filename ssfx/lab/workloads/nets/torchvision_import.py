"""Torchvision, also where its compiled extension cannot be loaded; and its Mask R-CNN with a loss of two tensors.

The extension of a CUDA build links against CUDA libraries that a CPU-only torch does not bring. Torchvision then stops
while it describes the extension's operators to torch, although models use none of them. Declaring those operators
ourselves is enough for it to import.
"""

import functools
import importlib
import re
import sys
from typing import Any

import torch
from torch import Tensor, nn

from ssfx.core.errors import ConfigError

# Torchvision describes exactly these two without asking whether the extension is loaded.
_SCHEMAS = {name: f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms")}
_MISSING = re.compile(r"^operator torchvision::(\w+) does not exist$")


def import_torchvision() -> Any:
    """Return the torchvision module; ConfigError with an installation hint when it cannot be imported."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        found = _MISSING.match(str(error))
        if found is None or found[1] not in _SCHEMAS:
            raise _mismatch(error) from error
    except ImportError as error:
        raise _mismatch(error) from error
    _declare_operators()
    for module in [m for m in sys.modules if m.partition(".")[0] == "torchvision"]:
        del sys.modules[module]
    try:
        return importlib.import_module("torchvision")
    except (ImportError, RuntimeError) as error:
        raise _mismatch(error) from error


@functools.cache
def _declare_operators() -> torch.library.Library:
    # The declarations live as long as the library object, which the cache keeps.
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS.values():
        library.define(schema)
    return library


def _mismatch(error: Exception) -> ConfigError:
    reason = str(error).partition("\n")[0]
    return ConfigError(
        f"torchvision does not import next to torch {torch.__version__} ({reason}); install a matching pair, "
        "for example: pip install --upgrade torch torchvision --index-url https://download.pytorch.org/whl/cpu"
    )


class MaskRcnn(nn.Module):
    """Mask R-CNN with a ResNet-50 feature pyramid (He et al. 2017), all of it trained, batch norm included."""

    def __init__(self, *, num_classes: int, shorter_side: int = 800) -> None:
        super().__init__()
        detection = import_torchvision().models.detection
        self.network = detection.maskrcnn_resnet50_fpn(
            weights=None, weights_backbone=None, num_classes=num_classes, min_size=shorter_side
        )

    def training_loss(self, images: Tensor, boxes: Tensor) -> Tensor:
        """Return the sum of the five losses of images [N, 3, H, W] with values in [0, 1].

        boxes: [N, B, 5], the class from 1 on, then left, top, right, bottom in pixels. What a mask covers is its box.
        """
        targets = [
            {"labels": one[:, 0].long(), "boxes": one[:, 1:], "masks": _masks(one[:, 1:], images)} for one in boxes
        ]
        losses: dict[str, Tensor] = self.network(list(images), targets)
        return torch.stack(list(losses.values())).sum()

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        """Return what is found in each image: boxes, labels, scores and masks."""
        found: list[dict[str, Tensor]] = self.network(list(images))
        return found


def _masks(boxes: Tensor, images: Tensor) -> Tensor:
    rows, columns = (torch.arange(n, device=images.device) for n in images.shape[-2:])
    left, top, right, bottom = (edge[:, None] for edge in boxes.unbind(1))
    inside = (rows >= top) & (rows < bottom), (columns >= left) & (columns < right)
    return (inside[0][:, :, None] & inside[1][:, None]).to(torch.uint8)


def of_torchvision(*, name: str) -> nn.Module:
    """Return the model that torchvision has by this name, with random weights."""
    model: nn.Module = import_torchvision().models.get_model(name, weights=None)
    return model
