"""The paper's models by definition, with random weights; nothing is downloaded.

Batch sizes are those of the authors' scripts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.lab.workloads.base import Model, models

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

_IMAGES = "RGB images 3x224x224 of 1000 classes"
_QUESTIONS = "tokens of a question and a context, with the answer's span"


def _torchvision(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from ssfx.lab.workloads.nets.torchvision_import import import_torchvision

        model: nn.Module = import_torchvision().models.get_model(name, weights=None)
        return model

    return build


def _bert_base() -> nn.Module:
    from ssfx.lab.workloads.nets.hugging_face import bert_qa

    return bert_qa(width=768, layers=12, heads=12, vocabulary=30528)  # 30522 padded to a multiple of 64


def _bert_large() -> nn.Module:
    from ssfx.lab.workloads.nets.hugging_face import bert_qa

    return bert_qa(width=1024, layers=24, heads=16, vocabulary=30522)


def _gpt2() -> nn.Module:
    from ssfx.lab.workloads.nets.hugging_face import gpt2

    return gpt2(width=768, layers=12, heads=12, vocabulary=50257, positions=1024, dropout=0.1)


def _gpt2_large() -> nn.Module:
    from ssfx.lab.workloads.nets.hugging_face import gpt2

    return gpt2(width=1280, layers=36, heads=20, vocabulary=50257, positions=1024, dropout=0.1)


def _vit_large() -> nn.Module:
    from ssfx.lab.workloads.nets.hugging_face import vit

    return vit(width=1024, layers=24, heads=16)


def _lstm_wikitext2() -> nn.Module:
    from ssfx.lab.workloads.nets.recurrent import LstmLm

    return LstmLm(vocabulary=33278, embedding=1500, hidden=1500, layers=2, dropout=0.5, tied=True)


_QA, _GPT2 = "transformers BertForQuestionAnswering", "transformers GPT2LMHeadModel"

for _name, _size in (
    ("resnet50", "25.6 M"), ("resnet101", "44.5 M"), ("resnet152", "60.2 M"), ("vgg16", "138.4 M"),
    ("vgg19", "143.7 M"),
):  # fmt: skip
    _summary = f"ImageNet {_name} of torchvision, {_size} parameters"
    models.add(Model(_name, _summary, _IMAGES, _torchvision(_name), 32, f"torchvision.models.{_name}"))
for _model in (
    Model("vit_large", "ViT-L/16 with a 1000-class head, 304.3 M parameters",
          _IMAGES, _vit_large, 32, "transformers ViTForImageClassification"),
    Model("bert_base", "BERT-base with a question-answering head and no pooler, 108.9 M parameters",
          _QUESTIONS, _bert_base, 4, _QA, 512),
    Model("bert_large", "BERT-large with a question-answering head and no pooler, 334.1 M parameters",
          _QUESTIONS, _bert_large, 4, _QA, 512),
    Model("gpt2", "GPT-2 small with a tied head, 124.4 M parameters (the authors' script)",
          "GPT-2 tokens", _gpt2, 2, _GPT2, 1024),
    Model("gpt2_large", "GPT-2 large with a tied head, 774.0 M parameters",
          "GPT-2 tokens", _gpt2_large, 2, _GPT2, 1024),
    Model("lstm_wikitext2", "2-layer LSTM of 1500 units with a tied head over WikiText-2 words, 86.0 M parameters",
          "WikiText-2 words", _lstm_wikitext2, 80, "the 328 MiB model of Espresso (EuroSys 2023)"),
):  # fmt: skip
    models.add(_model)
