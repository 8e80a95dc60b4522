"""Small models with the shapes of trouble: many sizes, tied, frozen, unused and branch-ordered parameters."""

import torch
from torch import nn


class Mlp(nn.Module):
    """A few linear layers of very different sizes, with a scalar gain."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(20, 300)
        self.middle = nn.Linear(300, 40)
        self.norm = nn.LayerNorm(40)
        self.last = nn.Linear(40, 5)
        self.gain = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(torch.tanh(self.middle(torch.tanh(self.first(x)))))) * self.gain


class Branches(nn.Module):
    """Two branches whose order in the graph, and so the order of gradients, is chosen per call; one may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(20, 30)
        self.b = nn.Linear(20, 30)
        self.head = nn.Linear(30, 5)
        self.spare = nn.Linear(7, 7)

    def forward(self, x: torch.Tensor, order: str = "ab") -> torch.Tensor:
        parts = [torch.tanh(getattr(self, branch)(x)) for branch in order]
        return self.head(torch.stack(parts).sum(0))


class Tied(nn.Module):
    """Embedding and output share one matrix; a bias is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.inner = nn.Linear(16, 16)
        self.inner.bias.requires_grad_(False)
        self.out = nn.Linear(16, 50, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.inner(self.embed(tokens))))


def build(kind: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return {"mlp": Mlp, "branches": Branches, "tied": Tied}[kind]()


def batch(rank: int, step: int, kind: str = "mlp") -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    if kind == "tied":
        return torch.randint(50, (8,), generator=generator), torch.randint(50, (8,), generator=generator)
    return torch.randn(8, 20, generator=generator), torch.randint(5, (8,), generator=generator)


def loss_of(model: nn.Module, rank: int, step: int, kind: str = "mlp", **options: str) -> torch.Tensor:
    x, y = batch(rank, step, kind)
    return nn.functional.cross_entropy(model(x, **options), y)


def parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}
