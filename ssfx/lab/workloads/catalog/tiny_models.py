"""Models small enough to train on a CPU in seconds, one for each family of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.lab.workloads.base import Model, models

if TYPE_CHECKING:
    from torch import nn


def _resnet_tiny() -> nn.Module:
    from ssfx.lab.workloads.nets.resnet import CifarResNet

    return CifarResNet(blocks_per_stage=3, channels=1, num_classes=10)


def _vgg_tiny() -> nn.Module:
    from ssfx.lab.workloads.nets.vgg import SmallVgg

    return SmallVgg(channels=1, stages=(32, 64, 128), widths=(1024, 512), num_classes=10)


def _lstm_tiny() -> nn.Module:
    from ssfx.lab.workloads.nets.lstm import LstmLm

    return LstmLm(vocabulary=256, embedding=256, hidden=256, layers=2)


def _gpt2_tiny() -> nn.Module:
    from ssfx.lab.workloads.nets.hugging_face import gpt2

    return gpt2(width=192, layers=4, heads=6, vocabulary=256, positions=256, dropout=0.0)


_DIGITS = "gray images 1x32x32 of 10 classes"

for _model in (
    Model("resnet_tiny", "CIFAR-style ResNet-20 for 1x32x32 digits, batch norm, 272 k parameters",
          _DIGITS, _resnet_tiny, 32, "He et al. 2016, section 4.2, with projection shortcuts"),
    Model("vgg_tiny",
          "VGG-like network for 1x32x32 digits, 3 convolutions, 2.7 M parameters, most of them in one layer",
          _DIGITS, _vgg_tiny, 32, "in the manner of Simonyan and Zisserman 2015: few large tensors beside small ones"),
    Model("lstm_tiny", "byte-level LSTM language model, 2 layers of 256 units, 1.2 M parameters",
          "bytes", _lstm_tiny, 16, "the paper's LSTM with fewer units and a byte vocabulary"),
    Model("gpt2_tiny", "byte-level GPT-2, 4 layers of width 192, tied head, 1.9 M parameters",
          "bytes", _gpt2_tiny, 8, "transformers GPT2LMHeadModel", 256),
):  # fmt: skip
    models.add(_model)
