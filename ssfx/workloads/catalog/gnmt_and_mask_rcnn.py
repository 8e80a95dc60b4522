"""Models of the papers that neither classify nor continue a sequence: translation and detection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.workloads.base import Model, models

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


def _gnmt(layers: int) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from ssfx.workloads.nets.gnmt import Gnmt

        return Gnmt(vocabulary=32317, width=1024, layers=layers, dropout=0.2)

    return build


def _mask_rcnn() -> nn.Module:
    from ssfx.workloads.nets.detection import MaskRcnn

    return MaskRcnn(num_classes=91)


for _name, _layers, _size in (("gnmt8", 4, "193.8 M"), ("gnmt16", 8, "277.7 M")):
    models.add(
        Model(
            name=_name,
            summary=f"GNMT of {_layers} layers that read and {_layers} that write, {_size} parameters (S2 Reducer)",
            inputs="tokens of a sentence and its translation",
            build=_gnmt(_layers),
            batch_size=64,
            source="Wu et al. 2016; 1024 units and 32,317 tokens, which give the embeddings the size S2 Reducer prints",
        )
    )
models.add(
    Model(
        name="mask_rcnn",
        summary="Mask R-CNN with a ResNet-50 feature pyramid, 44.5 M parameters (MergeComp); synthetic boxes only",
        inputs="RGB images with boxes and masks of 91 classes",
        build=_mask_rcnn,
        batch_size=1,
        source="torchvision.models.detection.maskrcnn_resnet50_fpn",
    )
)
