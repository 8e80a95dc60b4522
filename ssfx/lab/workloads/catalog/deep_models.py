"""Models with every layer of the paper's, so that gradients of all their tensors can be had on a CPU in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.lab.workloads.base import Model, models

if TYPE_CHECKING:
    from torch import nn


def _resnet152_digits() -> nn.Module:
    from ssfx.lab.workloads.nets.resnet import for_32x32

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
