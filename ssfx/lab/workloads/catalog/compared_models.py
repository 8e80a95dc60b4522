"""Models of the other papers and of SSFusion's large-model experiment, by definition, to plan and simulate with.

Batch sizes are those the papers print; GPT2-XL and BLOOM-3B have no printed one and take GPT-2 large's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ssfx.lab.workloads.base import Model, models

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

_CIFAR = "RGB images 3x32x32 of {} classes"
_PRETRAINING = "tokens of two sentences, some masked"


def _residual(name: str, num_classes: int) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from ssfx.lab.workloads.nets.cifar import for_32x32

        return for_32x32(name, channels=3, num_classes=num_classes)

    return build


def _vgg(convolutions: tuple[int, ...], widths: tuple[int, ...], num_classes: int) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from ssfx.lab.workloads.nets.cifar import CifarVgg

        return CifarVgg(convolutions=convolutions, widths=widths, num_classes=num_classes)

    return build


_VGG16, _VGG19 = (2, 2, 3, 3, 3), (2, 2, 4, 4, 4)


def _densenet40() -> nn.Module:
    from ssfx.lab.workloads.nets.cifar import DenseNet40

    return DenseNet40(num_classes=100)


def _googlenet() -> nn.Module:
    from ssfx.lab.workloads.nets.cifar import CifarGoogLeNet

    return CifarGoogLeNet(num_classes=10)


def _senet18() -> nn.Module:
    from ssfx.lab.workloads.nets.cifar import CifarSeNet18

    return CifarSeNet18(num_classes=10)


def _bert_pretraining(width: int, layers: int, heads: int) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from ssfx.lab.workloads.nets.hugging_face import bert_pretraining

        return bert_pretraining(width=width, layers=layers, heads=heads, vocabulary=30522)

    return build


def _gpt2_xl() -> nn.Module:
    from ssfx.lab.workloads.nets.hugging_face import gpt2

    return gpt2(width=1600, layers=48, heads=25, vocabulary=50257, positions=1024, dropout=0.1)


def _bloom_3b() -> nn.Module:
    from ssfx.lab.workloads.nets.hugging_face import bloom

    return bloom(width=2560, layers=30, heads=32, vocabulary=250880)


def _lstm_650() -> nn.Module:
    from ssfx.lab.workloads.nets.recurrent import LstmLm

    return LstmLm(vocabulary=28869, embedding=650, hidden=650, layers=3, dropout=0.5)


def _images(
    name: str, summary: str, build: Callable[[], nn.Module], num_classes: int, batch_size: int, source: str
) -> Model:
    return Model(name, summary, _CIFAR.format(num_classes), build, batch_size, source)


_STEM = "torchvision.models.{}; 3x3 stem of He et al. 2016, section 4.2"

for _model in (
    _images("resnet18_cifar10", "ResNet-18 with the CIFAR stem, 11.2 M parameters (MiCRO)",
            _residual("resnet18", 10), 10, 32, _STEM.format("resnet18")),
    _images("resnet50_cifar10", "ResNet-50 with the CIFAR stem, 23.5 M parameters (MergeComp)",
            _residual("resnet50", 10), 10, 64, _STEM.format("resnet50")),
    _images("resnet101_cifar10", "ResNet-101 with the CIFAR stem, 42.5 M parameters (MergeComp)",
            _residual("resnet101", 10), 10, 64, _STEM.format("resnet101")),
    _images("resnet50_cifar100", "ResNet-50 with the CIFAR stem, 23.7 M parameters (S2 Reducer)",
            _residual("resnet50", 100), 100, 128, _STEM.format("resnet50")),
    _images("resnet152_cifar100", "ResNet-152 with the CIFAR stem, 58.3 M parameters (SSFusion)",
            _residual("resnet152", 100), 100, 32, _STEM.format("resnet152")),
    _images("vgg16_cifar10", "VGG-16 with batch norm and one linear layer, 14.7 M parameters (ACP-SGD)",
            _vgg(_VGG16, (), 10), 10, 128, "Simonyan and Zisserman 2015, column D; one linear layer is assumed"),
    _images("vgg16_cifar100", "VGG-16 with batch norm and three linear layers, 34.0 M parameters (SSFusion's script)",
            _vgg(_VGG16, (4096, 4096), 100), 100, 32, "Simonyan and Zisserman 2015, column D"),
    _images("vgg19_cifar100", "VGG-19 with batch norm and three linear layers, 39.3 M parameters (SSFusion's script)",
            _vgg(_VGG19, (4096, 4096), 100), 100, 32, "Simonyan and Zisserman 2015, column E"),
    _images("googlenet_cifar10", "GoogLeNet with batch norm and a 3x3 stem, 6.2 M parameters (MiCRO)",
            _googlenet, 10, 32, "Szegedy et al. 2015"),
    _images("senet18_cifar10", "SENet-18, 11.3 M parameters (MiCRO)", _senet18, 10, 32, "Hu et al. 2018"),
    _images("densenet40_cifar100", "DenseNet-40 of growth 12 without bottlenecks, 1.1 M parameters (S2 Reducer)",
            _densenet40, 100, 128, "Huang et al. 2017"),
    Model("bert_base_pretraining", "BERT-base with both pre-training heads, 110.1 M parameters (ACP-SGD)",
          _PRETRAINING, _bert_pretraining(768, 12, 12), 32, "transformers BertForPreTraining", 512),
    Model("bert_large_pretraining", "BERT-large with both pre-training heads, 336.2 M parameters (ACP-SGD)",
          _PRETRAINING, _bert_pretraining(1024, 24, 16), 8, "transformers BertForPreTraining", 512),
    Model("gpt2_xl", "GPT-2 XL with a tied head, 1557.6 M parameters (SSFusion, large models)",
          "GPT-2 tokens", _gpt2_xl, 2, "transformers GPT2LMHeadModel", 1024),
    Model("bloom_3b", "BLOOM-3B with a tied head, 3002.6 M parameters (SSFusion, large models)",
          "BLOOM tokens", _bloom_3b, 2, "transformers BloomForCausalLM", 2048),
    Model("lstm_650", "3-layer LSTM of 650 units, separate head, 47.7 M parameters (S2 Reducer)",
          "WikiText-2 words of PowerSGD's vocabulary", _lstm_650, 16, "PowerSGD's language task (S2 Reducer, Table 1)"),
):  # fmt: skip
    models.add(_model)


def _gnmt(layers: int) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from ssfx.lab.workloads.nets.recurrent import Gnmt

        return Gnmt(vocabulary=32317, width=1024, layers=layers, dropout=0.2)

    return build


def _mask_rcnn() -> nn.Module:
    from ssfx.lab.workloads.nets.torchvision_import import MaskRcnn

    return MaskRcnn(num_classes=91)


_SOURCE = "Wu et al. 2016; 1024 units and 32,317 tokens, which give the embeddings the size S2 Reducer prints"

for _name, _layers, _size in (("gnmt8", 4, "193.8 M"), ("gnmt16", 8, "277.7 M")):
    _summary = f"GNMT of {_layers} layers that read and {_layers} that write, {_size} parameters (S2 Reducer)"
    models.add(Model(_name, _summary, "tokens of a sentence and its translation", _gnmt(_layers), 64, _SOURCE))
models.add(
    Model("mask_rcnn",
          "Mask R-CNN with a ResNet-50 feature pyramid, 44.5 M parameters (MergeComp); synthetic boxes only",
          "RGB images with boxes and masks of 91 classes", _mask_rcnn, 1,
          "torchvision.models.detection.maskrcnn_resnet50_fpn")
)  # fmt: skip
