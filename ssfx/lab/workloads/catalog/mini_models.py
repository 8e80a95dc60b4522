"""The four families of SSFusion's Fig. 12 at a size that trains on two CPU cores in seconds."""

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
    from ssfx.lab.workloads.nets.lstm import LstmLm

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
