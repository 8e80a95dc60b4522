"""Models of the field on CIFAR-10 and WikiText-2, small enough for thousands of steps on two CPU cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.lab.workloads.base import Model, models

if TYPE_CHECKING:
    from torch import nn

VOCABULARY = 4096
"""Words that the language models tell apart: the head of 33,278 would be nine tenths of their work."""


def _resnet(blocks_per_stage: int) -> nn.Module:
    from ssfx.lab.workloads.nets.cifar import CifarResNet

    return CifarResNet(blocks_per_stage=blocks_per_stage, channels=3, num_classes=10)


def _resnet20() -> nn.Module:
    return _resnet(3)


def _resnet56() -> nn.Module:
    return _resnet(9)


def _vgg() -> nn.Module:
    from ssfx.lab.workloads.nets.mini import MiniVgg

    return MiniVgg(channels=3, stages=(32, 64, 128), side=16, width=256, num_classes=10, pool=2)


def _lstm() -> nn.Module:
    from ssfx.lab.workloads.nets.recurrent import LstmLm

    return LstmLm(vocabulary=VOCABULARY, embedding=96, hidden=96, layers=2, tied=True)


def _gpt2() -> nn.Module:
    from ssfx.lab.workloads.nets.hugging_face import gpt2

    return gpt2(width=128, layers=3, heads=4, vocabulary=VOCABULARY, positions=64, dropout=0.0)


_IMAGES = "RGB images 3x32x32 of 10 classes"
_WORDS = "the 4,096 most frequent words of WikiText-2"

for _model in (
    Model("resnet20_cifar10", "ResNet-20 for CIFAR-10, 272 k parameters", _IMAGES, _resnet20, 8,
          "He et al. 2016, section 4.2"),
    Model("resnet56_cifar10", "ResNet-56 for CIFAR-10, 856 k parameters", _IMAGES, _resnet56, 8,
          "He et al. 2016, section 4.2"),
    Model("vgg_small_cifar10", "VGG-like network for CIFAR-10, 3 convolutions, 293 k parameters",
          _IMAGES, _vgg, 8, "in the manner of Simonyan and Zisserman 2015, on images of half the size"),
    Model("lstm_wikitext2_small", "2-layer LSTM of 96 units on words, tied head, 546 k parameters",
          _WORDS, _lstm, 4, "the paper's LSTM with fewer units and 4,096 words"),
    Model("gpt2_small_wikitext2", "GPT-2 on words, 3 layers of width 128, tied head, 1.1 M parameters",
          _WORDS, _gpt2, 4, "transformers GPT2LMHeadModel", 64),
):  # fmt: skip
    models.add(_model)
