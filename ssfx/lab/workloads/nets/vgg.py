"""Networks of the VGG family for 32x32 images: a small one, and those with batch norm of the papers."""

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


class CifarVgg(nn.Module):
    """VGG with batch norm (Simonyan and Zisserman 2015, columns D and E) for 32x32 images.

    `widths` are those of the hidden fully connected layers; with none the head follows the 512 features at once.
    """

    def __init__(self, *, convolutions: Sequence[int], widths: Sequence[int], num_classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for count, width in zip(convolutions, (64, 128, 256, 512, 512), strict=True):
            for _ in range(count):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        dense: list[nn.Module] = []
        for width in widths:
            dense += [nn.Linear(channels, width), nn.ReLU(), nn.Dropout()]
            channels = width
        self.classifier = nn.Sequential(*dense, nn.Linear(channels, num_classes))

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, num_classes] of images [N, 3, 32, 32]."""
        logits: Tensor = self.classifier(self.features(images).flatten(1))
        return logits
