"""Models that train on CPU cores in seconds: SSFusion's four families, smaller ones, and deep ones with all layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.lab.workloads.base import Model, models
from ssfx.lab.workloads.catalog.generated_questions import VOCABULARY

if TYPE_CHECKING:
    from torch import nn


def _resnet_mini() -> nn.Module:
    from ssfx.lab.workloads.nets.mini import MiniResNet

    return MiniResNet(channels=1, stages=(16, 32, 64), num_classes=10)


def _vgg_mini() -> nn.Module:
    from ssfx.lab.workloads.nets.mini import MiniVgg

    return MiniVgg(channels=1, stages=(32, 64), side=8, width=256, num_classes=10)


def _lstm_mini() -> nn.Module:
    from ssfx.lab.workloads.nets.recurrent import LstmLm

    return LstmLm(vocabulary=256, embedding=64, hidden=96, layers=2)


def _gpt2_mini() -> nn.Module:
    from ssfx.lab.workloads.nets.hugging_face import gpt2

    return gpt2(width=64, layers=2, heads=2, vocabulary=256, positions=64, dropout=0.0)


def _bert_mini() -> nn.Module:
    from ssfx.lab.workloads.nets.mini import mini_bert

    return mini_bert(width=64, layers=2, heads=2, vocabulary=VOCABULARY, positions=32)


_DIGITS = "gray images 1x32x32 of 10 classes"

for _model in (
    Model("resnet_mini", "residual network of three blocks for 1x32x32 digits, batch norm, 78 k parameters",
          _DIGITS, _resnet_mini, 16,
          "the blocks of He et al. 2016, section 4.2, one a stage, on a quarter of the size"),
    Model("vgg_mini",
          "VGG-like network for 1x32x32 digits, 2 convolutions, 153 k parameters, most of them in two layers",
          _DIGITS, _vgg_mini, 16,
          "in the manner of Simonyan and Zisserman 2015: few large tensors and many small ones"),
    Model("lstm_mini", "byte-level LSTM language model, 2 layers of 96 units, 178 k parameters",
          "bytes", _lstm_mini, 16, "the paper's LSTM with fewer units and a byte vocabulary"),
    Model("gpt2_mini", "byte-level GPT-2, 2 layers of width 64, tied head, 121 k parameters",
          "bytes", _gpt2_mini, 16, "transformers GPT2LMHeadModel", 64),
    Model("bert_mini", "BERT of 2 layers of width 64 with a question-answering head, 77 k parameters",
          "words of a question and a context, with the answer's span", _bert_mini, 16,
          "transformers BertForQuestionAnswering", 32),
):  # fmt: skip
    models.add(_model)


def _resnet_tiny() -> nn.Module:
    from ssfx.lab.workloads.nets.cifar import CifarResNet

    return CifarResNet(blocks_per_stage=3, channels=1, num_classes=10)


def _vgg_tiny() -> nn.Module:
    from ssfx.lab.workloads.nets.cifar import SmallVgg

    return SmallVgg(channels=1, stages=(32, 64, 128), widths=(1024, 512), num_classes=10)


def _lstm_tiny() -> nn.Module:
    from ssfx.lab.workloads.nets.recurrent import LstmLm

    return LstmLm(vocabulary=256, embedding=256, hidden=256, layers=2)


def _gpt2_tiny() -> nn.Module:
    from ssfx.lab.workloads.nets.hugging_face import gpt2

    return gpt2(width=192, layers=4, heads=6, vocabulary=256, positions=256, dropout=0.0)


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


def _resnet152_digits() -> nn.Module:
    from ssfx.lab.workloads.nets.cifar import for_32x32

    return for_32x32("resnet152", channels=1, num_classes=10)


def _bert_large_narrow() -> nn.Module:
    from ssfx.lab.workloads.nets.hugging_face import SpanReader, bert_qa

    return SpanReader(bert_qa(width=256, layers=24, heads=4, vocabulary=257))


for _model in (
    Model("resnet152_digits", "ResNet-152 at full width with the CIFAR stem for 1x32x32 digits, 58.2 M parameters",
          "gray images 1x32x32 of 10 classes", _resnet152_digits, 4,
          "torchvision.models.resnet152; stem of He et al. 2016, section 4.2"),
    Model("bert_large_narrow",
          "BERT-large's 24 layers at a quarter of its width, for questions, 19.2 M parameters",
          "words of a question and a context, with the answer's span", _bert_large_narrow, 4,
          "transformers BertForQuestionAnswering", 512),
):  # fmt: skip
    models.add(_model)
