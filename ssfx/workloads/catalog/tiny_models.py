"""Models small enough to train on a CPU in seconds, one for each family of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.workloads.base import Model, models

if TYPE_CHECKING:
    from torch import nn


def _resnet_tiny() -> nn.Module:
    from ssfx.workloads.nets.resnet import CifarResNet

    return CifarResNet(blocks_per_stage=3, channels=1, num_classes=10)


def _vgg_tiny() -> nn.Module:
    from ssfx.workloads.nets.vgg import SmallVgg

    return SmallVgg(channels=1, stages=(32, 64, 128), widths=(1024, 512), num_classes=10)


def _lstm_tiny() -> nn.Module:
    from ssfx.workloads.nets.lstm import LstmLm

    return LstmLm(vocabulary=256, embedding=256, hidden=256, layers=2)


def _gpt2_tiny() -> nn.Module:
    from ssfx.workloads.nets.hugging_face import gpt2

    return gpt2(width=192, layers=4, heads=6, vocabulary=256, positions=256, dropout=0.0)


models.add(
    Model(
        name="resnet_tiny",
        summary="CIFAR-style ResNet-20 for 1x32x32 digits, batch norm, 272 k parameters",
        inputs="gray images 1x32x32 of 10 classes",
        build=_resnet_tiny,
        batch_size=32,
        source="He et al. 2016, section 4.2, with projection shortcuts",
    )
)
models.add(
    Model(
        name="vgg_tiny",
        summary="VGG-like network for 1x32x32 digits, 3 convolutions, 2.7 M parameters, most of them in one layer",
        inputs="gray images 1x32x32 of 10 classes",
        build=_vgg_tiny,
        batch_size=32,
        source="in the manner of Simonyan and Zisserman 2015: few large tensors beside small ones",
    )
)
models.add(
    Model(
        name="lstm_tiny",
        summary="byte-level LSTM language model, 2 layers of 256 units, 1.2 M parameters",
        inputs="bytes",
        build=_lstm_tiny,
        batch_size=16,
        source="the paper's LSTM with fewer units and a byte vocabulary",
    )
)
models.add(
    Model(
        name="gpt2_tiny",
        summary="byte-level GPT-2, 4 layers of width 192, tied head, 1.9 M parameters",
        inputs="bytes",
        build=_gpt2_tiny,
        batch_size=8,
        source="transformers GPT2LMHeadModel",
        max_seq_len=256,
    )
)
