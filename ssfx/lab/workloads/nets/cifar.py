"""Networks for 32x32 colour images whose definitions torchvision does not have: residual networks, VGG, and others.

VGG comes as a small one, and as those with batch norm of the papers.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from ssfx.lab.workloads.nets.torchvision_import import import_torchvision


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch norm and a shortcut, projected by a 1x1 convolution where the shape changes."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, channels_in, H, W] to [N, channels, H / stride, W / stride]."""
        out = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class CifarResNet(nn.Module):
    """The 6n+2-layer ResNet of He et al. 2016, section 4.2: three stages of 16, 32 and 64 channels."""

    def __init__(self, *, blocks_per_stage: int, channels: int, num_classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(16)
        self.stage1 = _stage(16, 16, blocks_per_stage, stride=1)
        self.stage2 = _stage(16, 32, blocks_per_stage, stride=2)
        self.stage3 = _stage(32, 64, blocks_per_stage, stride=2)
        self.head = nn.Linear(64, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, num_classes] of images [N, channels, 32, 32]."""
        out = functional.relu(self.bn(self.conv(images)))
        out = self.stage3(self.stage2(self.stage1(out)))
        logits: Tensor = self.head(out.mean(dim=(2, 3)))
        return logits


def _stage(channels_in: int, channels: int, blocks: int, stride: int) -> nn.Sequential:
    first = BasicBlock(channels_in, channels, stride)
    return nn.Sequential(first, *(BasicBlock(channels, channels, 1) for _ in range(blocks - 1)))


class MiniResNet(nn.Module):
    """A residual block per stage on images of a quarter of the size; every stage but the first halves them again."""

    def __init__(self, *, channels: int, stages: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, stages[0], 4, stride=4, bias=False)
        self.bn = nn.BatchNorm2d(stages[0])
        blocks = [BasicBlock(before, after, 2) for before, after in pairwise(stages)]
        self.blocks = nn.Sequential(BasicBlock(stages[0], stages[0], 1), *blocks)
        self.head = nn.Linear(stages[-1], num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, num_classes] of images [N, channels, H, W]."""
        out = self.blocks(functional.relu(self.bn(self.conv(images))))
        logits: Tensor = self.head(out.mean(dim=(2, 3)))
        return logits


def for_32x32(name: str, *, channels: int, num_classes: int) -> nn.Module:
    """Return torchvision's ResNet `name` with the stem for small images: a 3x3 convolution of stride 1, no pooling."""
    model: nn.Module = import_torchvision().models.get_model(name, weights=None, num_classes=num_classes)
    stem = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")  # as torchvision does for the others
    model.conv1 = stem
    model.maxpool = nn.Identity()
    return model


class SmallVgg(nn.Module):
    """3x3 convolutions on images whose sides were divided by `pool`, each halving them, wide layers and a head."""

    def __init__(
        self, *, channels: int, stages: Sequence[int], widths: Sequence[int], num_classes: int, pool: int = 1
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.AvgPool2d(pool)] if pool > 1 else []
        for width in stages:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            channels = width
        self.features = nn.Sequential(*layers)
        inputs = channels * (32 // pool >> len(stages)) ** 2
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


class _DenseLayer(nn.Module):
    """Batch norm, ReLU and a 3x3 convolution to `growth` channels, appended to what came in."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, self.conv(functional.relu(self.bn(x)))), dim=1)


class DenseNet40(nn.Module):
    """DenseNet of 40 layers without bottlenecks: three blocks of twelve layers, growth 12 (Huang et al. 2017)."""

    def __init__(self, *, num_classes: int, growth: int = 12, layers_per_block: int = 12) -> None:
        super().__init__()
        channels = 16
        layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1, bias=False)]
        for block in range(3):
            for _ in range(layers_per_block):
                layers.append(_DenseLayer(channels, growth))
                channels += growth
            layers += [nn.BatchNorm2d(channels), nn.ReLU()]
            if block < 2:
                layers += [nn.Conv2d(channels, channels, 1, bias=False), nn.AvgPool2d(2)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, num_classes] of images [N, 3, 32, 32]."""
        logits: Tensor = self.head(self.features(images).mean(dim=(2, 3)))
        return logits


def _unit(channels_in: int, channels: int, kernel: int) -> list[nn.Module]:
    conv = nn.Conv2d(channels_in, channels, kernel, padding=kernel // 2)
    return [conv, nn.BatchNorm2d(channels), nn.ReLU()]


class _Inception(nn.Module):
    """Four branches side by side; the 5x5 convolution is two of 3x3."""

    def __init__(self, channels: int, one: int, three: tuple[int, int], five: tuple[int, int], pool: int) -> None:
        super().__init__()
        self.one = nn.Sequential(*_unit(channels, one, 1))
        self.three = nn.Sequential(*_unit(channels, three[0], 1), *_unit(three[0], three[1], 3))
        self.five = nn.Sequential(
            *_unit(channels, five[0], 1), *_unit(five[0], five[1], 3), *_unit(five[1], five[1], 3)
        )
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), *_unit(channels, pool, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.one(x), self.three(x), self.five(x), self.pool(x)), dim=1)


class CifarGoogLeNet(nn.Module):
    """GoogLeNet (Szegedy et al. 2015) with batch norm and, for small images, one 3x3 convolution as its stem."""

    def __init__(self, *, num_classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_unit(3, 192, 3),
            _Inception(192, 64, (96, 128), (16, 32), 32),
            _Inception(256, 128, (128, 192), (32, 96), 64),
            nn.MaxPool2d(3, 2, 1),
            _Inception(480, 192, (96, 208), (16, 48), 64),
            _Inception(512, 160, (112, 224), (24, 64), 64),
            _Inception(512, 128, (128, 256), (24, 64), 64),
            _Inception(512, 112, (144, 288), (32, 64), 64),
            _Inception(528, 256, (160, 320), (32, 128), 128),
            nn.MaxPool2d(3, 2, 1),
            _Inception(832, 256, (160, 320), (32, 128), 128),
            _Inception(832, 384, (192, 384), (48, 128), 128),
        )
        self.head = nn.Linear(1024, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, num_classes] of images [N, 3, 32, 32]."""
        logits: Tensor = self.head(self.features(images).mean(dim=(2, 3)))
        return logits


class _SqueezeBlock(nn.Module):
    """A pre-activation residual block whose output channels are weighted by a squeeze-and-excitation branch."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.shortcut: nn.Module | None = None
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
        self.squeeze = nn.Conv2d(channels, channels // 16, 1)
        self.excite = nn.Conv2d(channels // 16, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        active = functional.relu(self.bn1(x))
        shortcut = x if self.shortcut is None else self.shortcut(active)
        out = self.conv2(functional.relu(self.bn2(self.conv1(active))))
        weight = functional.relu(self.squeeze(out.mean(dim=(2, 3), keepdim=True)))
        weighted: Tensor = out * torch.sigmoid(self.excite(weight)) + shortcut
        return weighted


class CifarSeNet18(nn.Module):
    """SENet-18 (Hu et al. 2018): the 18-layer residual network with squeeze-and-excitation, 3x3 stem."""

    def __init__(self, *, num_classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
        channels_in = 64
        for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [_SqueezeBlock(channels_in, channels, stride), _SqueezeBlock(channels, channels, 1)]
            channels_in = channels
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels_in, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, num_classes] of images [N, 3, 32, 32]."""
        logits: Tensor = self.head(self.features(images).mean(dim=(2, 3)))
        return logits
