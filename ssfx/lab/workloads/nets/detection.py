"""Mask R-CNN of torchvision with a loss of two tensors, as the training loop has them."""

import torch
from torch import Tensor, nn

from ssfx.lab.workloads.nets.torchvision_import import import_torchvision


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
