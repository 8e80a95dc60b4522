"""The papers' models by definition, with random weights, to train, plan and simulate with; nothing is downloaded.

Batch sizes are those of SSFusion's scripts, and those that the other papers print. GPT2-XL and BLOOM-3B have no printed
one and take GPT-2 large's.
"""

from __future__ import annotations

from ssfx.lab.workloads.base import Model, models, network

_IMAGES = "RGB images 3x224x224 of 1000 classes"
_QUESTIONS = "tokens of a question and a context, with the answer's span"
_PRETRAINING = "tokens of two sentences, some masked"
_QA, _GPT2 = "transformers BertForQuestionAnswering", "transformers GPT2LMHeadModel"

for _name, _size in (
    ("resnet50", "25.6 M"), ("resnet101", "44.5 M"), ("resnet152", "60.2 M"), ("vgg16", "138.4 M"),
    ("vgg19", "143.7 M"),
):  # fmt: skip
    models.add(
        Model(_name, f"ImageNet {_name} of torchvision, {_size} parameters", _IMAGES,
              network("torchvision_import.of_torchvision", name=_name), 32, f"torchvision.models.{_name}")
    )  # fmt: skip

for _name, _summary, _network, _batch, _source in (
    ("resnet18_cifar10", "ResNet-18 with the CIFAR stem, 11.2 M parameters (MiCRO)",
     network("cifar.for_32x32", name="resnet18", channels=3, num_classes=10), 32, ""),
    ("resnet50_cifar10", "ResNet-50 with the CIFAR stem, 23.5 M parameters (MergeComp)",
     network("cifar.for_32x32", name="resnet50", channels=3, num_classes=10), 64, ""),
    ("resnet101_cifar10", "ResNet-101 with the CIFAR stem, 42.5 M parameters (MergeComp)",
     network("cifar.for_32x32", name="resnet101", channels=3, num_classes=10), 64, ""),
    ("resnet50_cifar100", "ResNet-50 with the CIFAR stem, 23.7 M parameters (S2 Reducer)",
     network("cifar.for_32x32", name="resnet50", channels=3, num_classes=100), 128, ""),
    ("resnet152_cifar100", "ResNet-152 with the CIFAR stem, 58.3 M parameters (SSFusion)",
     network("cifar.for_32x32", name="resnet152", channels=3, num_classes=100), 32, ""),
    ("vgg16_cifar10", "VGG-16 with batch norm and one linear layer, 14.7 M parameters (ACP-SGD)",
     network("cifar.CifarVgg", convolutions=(2, 2, 3, 3, 3), widths=(), num_classes=10), 128,
     "Simonyan and Zisserman 2015, column D; one linear layer is assumed"),
    ("vgg16_cifar100", "VGG-16 with batch norm and three linear layers, 34.0 M parameters (SSFusion's script)",
     network("cifar.CifarVgg", convolutions=(2, 2, 3, 3, 3), widths=(4096, 4096), num_classes=100), 32,
     "Simonyan and Zisserman 2015, column D"),
    ("vgg19_cifar100", "VGG-19 with batch norm and three linear layers, 39.3 M parameters (SSFusion's script)",
     network("cifar.CifarVgg", convolutions=(2, 2, 4, 4, 4), widths=(4096, 4096), num_classes=100), 32,
     "Simonyan and Zisserman 2015, column E"),
    ("googlenet_cifar10", "GoogLeNet with batch norm and a 3x3 stem, 6.2 M parameters (MiCRO)",
     network("cifar.CifarGoogLeNet", num_classes=10), 32, "Szegedy et al. 2015"),
    ("senet18_cifar10", "SENet-18, 11.3 M parameters (MiCRO)",
     network("cifar.CifarSeNet18", num_classes=10), 32, "Hu et al. 2018"),
    ("densenet40_cifar100", "DenseNet-40 of growth 12 without bottlenecks, 1.1 M parameters (S2 Reducer)",
     network("cifar.DenseNet40", num_classes=100), 128, "Huang et al. 2017"),
):  # fmt: skip
    _kind, _, _classes = _name.partition("_cifar")
    _source = _source or f"torchvision.models.{_kind}; 3x3 stem of He et al. 2016, section 4.2"
    models.add(Model(_name, _summary, f"RGB images 3x32x32 of {_classes} classes", _network, _batch, _source))

for _model in (
    Model("vit_large", "ViT-L/16 with a 1000-class head, 304.3 M parameters", _IMAGES,
          network("hugging_face.vit", width=1024, layers=24, heads=16), 32, "transformers ViTForImageClassification"),
    Model("bert_base", "BERT-base with a question-answering head and no pooler, 108.9 M parameters", _QUESTIONS,
          # the vocabulary of 30522 is padded to a multiple of 64
          network("hugging_face.bert_qa", width=768, layers=12, heads=12, vocabulary=30528), 4, _QA, 512),
    Model("bert_large", "BERT-large with a question-answering head and no pooler, 334.1 M parameters", _QUESTIONS,
          network("hugging_face.bert_qa", width=1024, layers=24, heads=16, vocabulary=30522), 4, _QA, 512),
    Model("gpt2", "GPT-2 small with a tied head, 124.4 M parameters (the authors' script)", "GPT-2 tokens",
          network("hugging_face.gpt2", width=768, layers=12, heads=12, vocabulary=50257, positions=1024, dropout=0.1),
          2, _GPT2, 1024),
    Model("gpt2_large", "GPT-2 large with a tied head, 774.0 M parameters", "GPT-2 tokens",
          network("hugging_face.gpt2", width=1280, layers=36, heads=20, vocabulary=50257, positions=1024, dropout=0.1),
          2, _GPT2, 1024),
    Model("lstm_wikitext2", "2-layer LSTM of 1500 units with a tied head over WikiText-2 words, 86.0 M parameters",
          "WikiText-2 words",
          network("recurrent.LstmLm", vocabulary=33278, embedding=1500, hidden=1500, layers=2, dropout=0.5, tied=True),
          80, "the 328 MiB model of Espresso (EuroSys 2023)"),
    Model("bert_base_pretraining", "BERT-base with both pre-training heads, 110.1 M parameters (ACP-SGD)", _PRETRAINING,
          network("hugging_face.bert_pretraining", width=768, layers=12, heads=12, vocabulary=30522), 32,
          "transformers BertForPreTraining", 512),
    Model("bert_large_pretraining", "BERT-large with both pre-training heads, 336.2 M parameters (ACP-SGD)",
          _PRETRAINING,
          network("hugging_face.bert_pretraining", width=1024, layers=24, heads=16, vocabulary=30522), 8,
          "transformers BertForPreTraining", 512),
    Model("gpt2_xl", "GPT-2 XL with a tied head, 1557.6 M parameters (SSFusion, large models)", "GPT-2 tokens",
          network("hugging_face.gpt2", width=1600, layers=48, heads=25, vocabulary=50257, positions=1024, dropout=0.1),
          2, _GPT2, 1024),
    Model("bloom_3b", "BLOOM-3B with a tied head, 3002.6 M parameters (SSFusion, large models)", "BLOOM tokens",
          network("hugging_face.bloom", width=2560, layers=30, heads=32, vocabulary=250880), 2,
          "transformers BloomForCausalLM", 2048),
    Model("lstm_650", "3-layer LSTM of 650 units, separate head, 47.7 M parameters (S2 Reducer)",
          "WikiText-2 words of PowerSGD's vocabulary",
          network("recurrent.LstmLm", vocabulary=28869, embedding=650, hidden=650, layers=3, dropout=0.5), 16,
          "PowerSGD's language task (S2 Reducer, Table 1)"),
    Model("mask_rcnn",
          "Mask R-CNN with a ResNet-50 feature pyramid, 44.5 M parameters (MergeComp); synthetic boxes only",
          "RGB images with boxes and masks of 91 classes",
          network("torchvision_import.MaskRcnn", num_classes=91), 1,
          "torchvision.models.detection.maskrcnn_resnet50_fpn"),
):  # fmt: skip
    models.add(_model)

for _name, _layers, _size in (("gnmt8", 4, "193.8 M"), ("gnmt16", 8, "277.7 M")):
    models.add(
        Model(_name, f"GNMT of {_layers} layers that read and {_layers} that write, {_size} parameters (S2 Reducer)",
              "tokens of a sentence and its translation",
              network("recurrent.Gnmt", vocabulary=32317, width=1024, layers=_layers, dropout=0.2), 64,
              "Wu et al. 2016; 1024 units and 32,317 tokens, which give the embeddings the size S2 Reducer prints")
    )  # fmt: skip
