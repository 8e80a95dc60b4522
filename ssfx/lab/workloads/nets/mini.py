"""Networks of the papers' families so small that a run of hundreds of steps takes seconds on a CPU."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from ssfx.lab.workloads.nets.cifar import BasicBlock
from ssfx.lab.workloads.nets.hugging_face import SpanReader
from ssfx.lab.workloads.nets.torchvision_import import import_torchvision


class MiniResNet(nn.Module):
    """A residual block per stage on images of a quarter of the size; every stage but the first halves them again."""

    def __init__(self, *, channels: int, stages: Sequence[int], num_classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, stages[0], 4, stride=4, bias=False)
        self.bn = nn.BatchNorm2d(stages[0])
        blocks = [BasicBlock(before, after, 2) for before, after in pairwise(stages)]
        self.blocks = nn.Sequential(BasicBlock(stages[0], stages[0], 1), *blocks)
        self.head = nn.Linear(stages[-1], num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, num_classes] of images [N, channels, H, W]."""
        out = self.blocks(nn.functional.relu(self.bn(self.conv(images))))
        logits: Tensor = self.head(out.mean(dim=(2, 3)))
        return logits


class MiniVgg(nn.Module):
    """3x3 convolutions on images whose sides were divided by `pool`, each halving them, and a wide layer."""

    def __init__(
        self, *, channels: int, stages: Sequence[int], side: int, width: int, num_classes: int, pool: int = 4
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.AvgPool2d(pool)]
        for stage in stages:
            layers += [nn.Conv2d(channels, stage, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            channels, side = stage, side // 2
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(channels * side**2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, num_classes),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, num_classes] of images [N, channels, pool * side, pool * side]."""
        logits: Tensor = self.classifier(self.features(images).flatten(1))
        return logits


def mini_bert(*, width: int, layers: int, heads: int, vocabulary: int, positions: int) -> nn.Module:
    """Return BERT with a question-answering head, without dropout.

    Weights are drawn five times as wide as BERT's 0.02, which suits its width of 768 and more: with 0.02 a network of
    this width spends its first hundreds of steps on telling tokens apart.
    """
    import_torchvision()  # transformers imports it on its own, and would fail on a build that ours can repair
    import transformers

    config = transformers.BertConfig(
        vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=2 * width, max_position_embeddings=positions, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, initializer_range=0.1,
    )  # fmt: skip
    return SpanReader(transformers.BertForQuestionAnswering(config))
