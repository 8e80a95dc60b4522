"""exempt=auto: vectors, norms, heads and embeddings, at most 1 % of all elements, by modules and by names alike."""

import pytest
import torch
from torch import nn

from ssfx.planning.exempt import MOST_AUTO, exempt_by_name, most_important
from ssfx.planning.plan import TensorSpec
from ssfx.runtime.attach import exempt_names


class Small(nn.Module):
    """An embedding, blocks, and a head, as of a language model."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.emb = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(8))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)


def by_name(model: nn.Module) -> frozenset[str]:
    backward = reversed([TensorSpec(name, tuple(p.shape)) for name, p in model.named_parameters()])
    return exempt_by_name(list(backward), ["auto"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (40, {"norm.weight", "norm.bias", "head.bias", "head.weight"}),
        (2, {"norm.weight", "norm.bias", "head.bias", "head.weight", "emb.weight"}),
        (2000, {"norm.weight", "norm.bias", "head.bias"}),
    ],
)
def test_what_is_small_and_suffers_most_travels_whole(words: int, expected: set[str]) -> None:
    with torch.device("meta"):
        model = Small(words, 700)
    assert exempt_names(model, "auto") == by_name(model) == expected
    numel = {name: p.numel() for name, p in model.named_parameters()}
    assert sum(numel[name] for name in expected) <= MOST_AUTO * sum(numel.values())


def test_a_kind_may_be_asked_for_beside_it() -> None:
    model = Small(2000, 8)
    assert exempt_names(model, "auto,heads") == exempt_names(model, "auto") | {"head.weight"}


def test_what_does_not_fit_is_passed_over() -> None:
    numel = {"large": 990, "b": 9, "a": 9, "tiny": 1}
    assert most_important([["b", "a"], ["large", "tiny"]], numel) == {"a", "tiny"}
