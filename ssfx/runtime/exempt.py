"""Parameters that every scheme sends uncompressed, found in the modules of a model."""

from collections.abc import Sequence

from torch import nn

from ssfx.planning.exempt import AUTO, kinds_of, most_important


def exempt_names(model: nn.Module, kinds: str | Sequence[str]) -> frozenset[str]:
    """Return the parameters of `kinds`, frozen ones too: "vectors" of at most one dimension, "embeddings", "norms".

    `kinds` is a sequence, or a text with commas. A norm is a module whose class has Norm in its name, the "heads" are
    the weight of the last nn.Linear. "auto": of all these what `most_important` returns. ConfigError for another kind.
    """
    asked = kinds_of(kinds)
    named = {name.replace("_orig_mod.", ""): p for name, p in model.named_parameters()}
    if "auto" in asked:
        numel = {name: p.numel() for name, p in named.items()}
        chosen = most_important([exempt_names(model, [kind]) for kind in AUTO], numel)
        return chosen | exempt_names(model, [kind for kind in asked if kind != "auto"])
    taken: set[int] = set()
    for module in model.modules():
        norm = any("Norm" in kind.__name__ for kind in type(module).__mro__)
        table = isinstance(module, (nn.Embedding, nn.EmbeddingBag))
        if (norm and "norms" in asked) or (table and "embeddings" in asked):
            taken |= {id(p) for p in module.parameters(recurse=False)}
    if "vectors" in asked:
        taken |= {id(p) for p in model.parameters() if p.ndim <= 1}
    if "heads" in asked:
        taken |= {id(one.weight) for one in [one for one in model.modules() if isinstance(one, nn.Linear)][-1:]}
    return frozenset(name for name, p in named.items() if id(p) in taken)
