"""Parameters that every scheme sends uncompressed, found in the modules of a model."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from ssfx.planning.exempt import kinds_of


def exempt_names(model: nn.Module, kinds: str | Sequence[str]) -> frozenset[str]:
    """Return the parameters of `kinds`, frozen ones too: "vectors" of at most one dimension, "embeddings", "norms".

    `kinds` is a sequence, or a text with commas. A norm is a module whose class has Norm in its name. ConfigError for
    another kind.
    """
    asked = kinds_of(kinds)
    taken: set[int] = set()
    for module in model.modules():
        norm = any("Norm" in kind.__name__ for kind in type(module).__mro__)
        table = isinstance(module, (nn.Embedding, nn.EmbeddingBag))
        if (norm and "norms" in asked) or (table and "embeddings" in asked):
            taken |= {id(p) for p in module.parameters(recurse=False)}
    if "vectors" in asked:
        taken |= {id(p) for p in model.parameters() if p.ndim <= 1}
    named = model.named_parameters()
    return frozenset(name.replace("_orig_mod.", "") for name, p in named if id(p) in taken)
