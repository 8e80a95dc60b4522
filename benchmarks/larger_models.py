"""Two models of about 20 million parameters for benchmarks/emulated.py: as a user hands in models of their own."""

import torch
from torch import nn
from torch.nn import functional


class WordLstm(nn.Module):
    """An LSTM language model of 19.8 M parameters: 10,000 words, two layers of 650 units."""

    def __init__(self, words: int = 10_000, units: int = 650) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, units)
        self.recurrent = nn.LSTM(units, units, 2, batch_first=True)
        self.head = nn.Linear(units, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(self.embedding(tokens))[0])


class Block(nn.Module):
    """A transformer's block with normalisation in front."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.outputs = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.inputs(self.attention_norm(x)).chunk(3, -1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.outputs(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.feed_norm(x))


class Gpt(nn.Module):
    """A GPT of 15.2 M parameters: 8,192 tokens, five blocks of width 384."""

    def __init__(self, tokens: int = 8192, width: int = 384, blocks: int = 5, positions: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.positions = nn.Parameter(torch.zeros(1, positions, width))
        self.blocks = nn.Sequential(*(Block(width, 6) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.positions[:, : tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def lstm() -> nn.Module:
    """Return the LSTM."""
    return WordLstm()


def gpt() -> nn.Module:
    """Return the GPT."""
    return Gpt()


lstm.sample = (35,)  # type: ignore[attr-defined]
lstm.num_values = 10_000  # type: ignore[attr-defined]
lstm.batch_size = 4  # type: ignore[attr-defined]
lstm.optimizer = "sgd"  # type: ignore[attr-defined]
gpt.sample = (64,)  # type: ignore[attr-defined]
gpt.num_values = 8192  # type: ignore[attr-defined]
gpt.batch_size = 4  # type: ignore[attr-defined]
gpt.optimizer = "sgd"  # type: ignore[attr-defined]
