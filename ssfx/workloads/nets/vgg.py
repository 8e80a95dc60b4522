"""A small network in the manner of VGG: few convolutions, and most parameters in fully connected layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class SmallVgg(nn.Module):
    """3x3 convolutions, each halving the image, then fully connected layers of the given widths and a head."""

    def __init__(self, *, channels: int, stages: Sequence[int], widths: Sequence[int], num_classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in stages:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            channels = width
        self.features = nn.Sequential(*layers)
        inputs = channels * (32 >> len(stages)) ** 2
        dense: list[nn.Module] = []
        for width in widths:
            dense += [nn.Linear(inputs, width), nn.ReLU()]
            inputs = width
        self.classifier = nn.Sequential(*dense, nn.Linear(inputs, num_classes))

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, num_classes] of images [N, channels, 32, 32]."""
        logits: Tensor = self.classifier(self.features(images).flatten(1))
        return logits
