"""Models that train on CPU cores in seconds or minutes: SSFusion's families, smaller ones, deep ones with all layers.

Those on CIFAR-10 and WikiText-2 are the field's, small enough for thousands of steps on two cores.
"""

from __future__ import annotations

from ssfx.lab.workloads.base import Model, models, network
from ssfx.lab.workloads.catalog.generated_questions import VOCABULARY

WORDS = 4096
"""Words that language models of WikiText-2 tell apart: the head of 33,278 would be nine tenths of their work."""
_DIGITS = "gray images 1x32x32 of 10 classes"
_IMAGES = "RGB images 3x32x32 of 10 classes"
_QUESTIONS = "words of a question and a context, with the answer's span"
_WIKITEXT = "the 4,096 most frequent words of WikiText-2"
_GPT2, _QA = "transformers GPT2LMHeadModel", "transformers BertForQuestionAnswering"

for _model in (
    Model("resnet_mini", "residual network of three blocks for 1x32x32 digits, batch norm, 78 k parameters", _DIGITS,
          network("cifar.MiniResNet", channels=1, stages=(16, 32, 64), num_classes=10), 16,
          "the blocks of He et al. 2016, section 4.2, one a stage, on a quarter of the size"),
    Model("vgg_mini",
          "VGG-like network for 1x32x32 digits, 2 convolutions, 153 k parameters, most of them in two layers", _DIGITS,
          network("cifar.SmallVgg", channels=1, stages=(32, 64), widths=(256, 256), num_classes=10, pool=4), 16,
          "in the manner of Simonyan and Zisserman 2015: few large tensors and many small ones"),
    Model("lstm_mini", "byte-level LSTM language model, 2 layers of 96 units, 178 k parameters", "bytes",
          network("recurrent.LstmLm", vocabulary=256, embedding=64, hidden=96, layers=2), 16,
          "the paper's LSTM with fewer units and a byte vocabulary"),
    Model("gpt2_mini", "byte-level GPT-2, 2 layers of width 64, tied head, 121 k parameters", "bytes",
          network("hugging_face.gpt2", width=64, layers=2, heads=2, vocabulary=256, positions=64, dropout=0.0), 16,
          _GPT2, 64),
    Model("bert_mini", "BERT of 2 layers of width 64 with a question-answering head, 77 k parameters", _QUESTIONS,
          # Weights five times as wide as BERT's 0.02, which suits its width of 768 and more: with 0.02 a network of
          # this width spends its first hundreds of steps on telling tokens apart.
          network("hugging_face.span_reader", width=64, layers=2, heads=2, vocabulary=VOCABULARY,
                  intermediate_size=128, max_position_embeddings=32, hidden_dropout_prob=0.0,
                  attention_probs_dropout_prob=0.0, initializer_range=0.1), 16, _QA, 32),
    Model("resnet_tiny", "CIFAR-style ResNet-20 for 1x32x32 digits, batch norm, 272 k parameters", _DIGITS,
          network("cifar.CifarResNet", blocks_per_stage=3, channels=1, num_classes=10), 32,
          "He et al. 2016, section 4.2, with projection shortcuts"),
    Model("vgg_tiny",
          "VGG-like network for 1x32x32 digits, 3 convolutions, 2.7 M parameters, most of them in one layer", _DIGITS,
          network("cifar.SmallVgg", channels=1, stages=(32, 64, 128), widths=(1024, 512), num_classes=10), 32,
          "in the manner of Simonyan and Zisserman 2015: few large tensors beside small ones"),
    Model("lstm_tiny", "byte-level LSTM language model, 2 layers of 256 units, 1.2 M parameters", "bytes",
          network("recurrent.LstmLm", vocabulary=256, embedding=256, hidden=256, layers=2), 16,
          "the paper's LSTM with fewer units and a byte vocabulary"),
    Model("gpt2_tiny", "byte-level GPT-2, 4 layers of width 192, tied head, 1.9 M parameters", "bytes",
          network("hugging_face.gpt2", width=192, layers=4, heads=6, vocabulary=256, positions=256, dropout=0.0), 8,
          _GPT2, 256),
    Model("resnet152_digits", "ResNet-152 at full width with the CIFAR stem for 1x32x32 digits, 58.2 M parameters",
          _DIGITS, network("cifar.for_32x32", name="resnet152", channels=1, num_classes=10), 4,
          "torchvision.models.resnet152; stem of He et al. 2016, section 4.2"),
    Model("bert_large_narrow", "BERT-large's 24 layers at a quarter of its width, for questions, 19.2 M parameters",
          _QUESTIONS, network("hugging_face.span_reader", width=256, layers=24, heads=4, vocabulary=257), 4, _QA, 512),
    Model("resnet20_cifar10", "ResNet-20 for CIFAR-10, 272 k parameters", _IMAGES,
          network("cifar.CifarResNet", blocks_per_stage=3, channels=3, num_classes=10), 8,
          "He et al. 2016, section 4.2"),
    Model("resnet56_cifar10", "ResNet-56 for CIFAR-10, 856 k parameters", _IMAGES,
          network("cifar.CifarResNet", blocks_per_stage=9, channels=3, num_classes=10), 8,
          "He et al. 2016, section 4.2"),
    Model("vgg_small_cifar10", "VGG-like network for CIFAR-10, 3 convolutions, 293 k parameters", _IMAGES,
          network("cifar.SmallVgg", channels=3, stages=(32, 64, 128), widths=(256, 256), num_classes=10, pool=2), 8,
          "in the manner of Simonyan and Zisserman 2015, on images of half the size"),
    Model("lstm_wikitext2_small", "2-layer LSTM of 96 units on words, tied head, 546 k parameters", _WIKITEXT,
          network("recurrent.LstmLm", vocabulary=WORDS, embedding=96, hidden=96, layers=2, tied=True), 4,
          "the paper's LSTM with fewer units and 4,096 words"),
    Model("gpt2_small_wikitext2", "GPT-2 on words, 3 layers of width 128, tied head, 1.1 M parameters", _WIKITEXT,
          network("hugging_face.gpt2", width=128, layers=3, heads=4, vocabulary=WORDS, positions=64, dropout=0.0), 4,
          _GPT2, 64),
    Model("vit_small_cifar10", "ViT for CIFAR-10, 3 layers of width 128 on patches of 4x4, 611 k parameters", _IMAGES,
          network("hugging_face.vit", width=128, layers=3, heads=4, patch=4, side=32, num_classes=10), 8,
          "transformers ViTForImageClassification"),
):  # fmt: skip
    models.add(_model)
