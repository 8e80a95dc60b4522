"""Residual networks for 32x32 images."""

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


def for_32x32(name: str, *, channels: int, num_classes: int) -> nn.Module:
    """Return torchvision's ResNet `name` with the stem for small images: a 3x3 convolution of stride 1, no pooling."""
    model: nn.Module = import_torchvision().models.get_model(name, weights=None, num_classes=num_classes)
    stem = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")  # as torchvision does for the others
    model.conv1 = stem
    model.maxpool = nn.Identity()
    return model
