"""Models of the papers that neither classify nor continue a sequence: translation and detection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.lab.workloads.base import Model, models

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


def _gnmt(layers: int) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from ssfx.lab.workloads.nets.gnmt import Gnmt

        return Gnmt(vocabulary=32317, width=1024, layers=layers, dropout=0.2)

    return build


def _mask_rcnn() -> nn.Module:
    from ssfx.lab.workloads.nets.detection import MaskRcnn

    return MaskRcnn(num_classes=91)


_SOURCE = "Wu et al. 2016; 1024 units and 32,317 tokens, which give the embeddings the size S2 Reducer prints"

for _name, _layers, _size in (("gnmt8", 4, "193.8 M"), ("gnmt16", 8, "277.7 M")):
    _summary = f"GNMT of {_layers} layers that read and {_layers} that write, {_size} parameters (S2 Reducer)"
    models.add(Model(_name, _summary, "tokens of a sentence and its translation", _gnmt(_layers), 64, _SOURCE))
models.add(
    Model("mask_rcnn",
          "Mask R-CNN with a ResNet-50 feature pyramid, 44.5 M parameters (MergeComp); synthetic boxes only",
          "RGB images with boxes and masks of 91 classes", _mask_rcnn, 1,
          "torchvision.models.detection.maskrcnn_resnet50_fpn")
)  # fmt: skip
