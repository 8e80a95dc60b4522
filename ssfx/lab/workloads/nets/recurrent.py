"""Recurrent networks: LSTM language models, and GNMT.

GNMT (Wu et al. 2016) is in the form of NVIDIA's and MLPerf's PyTorch reference, which the papers trained.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class LstmLm(nn.Module):
    """Embedding, `layers` LSTM layers, linear head.

    The state starts at zero in every sample, so samples are independent.
    `tied` shares the embedding with the head, which then needs embedding == hidden.
    """

    def __init__(
        self, *, vocabulary: int, embedding: int, hidden: int, layers: int, dropout: float = 0.0, tied: bool = False
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(embedding, hidden, layers, dropout=dropout, batch_first=True)
        self.head = nn.Linear(hidden, vocabulary)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return next-token logits [N, T, vocabulary] of tokens [N, T]."""
        out, _ = self.lstm(self.dropout(self.embedding(tokens)))
        logits: Tensor = self.head(self.dropout(out))
        return logits


PADDING = 0


class Gnmt(nn.Module):
    """`layers` LSTM layers read a sentence and as many write its translation, with additive attention between them.

    Read: an embedding, a bidirectional layer, a layer on both directions, then layers with residual connections.
    Write: an embedding, a layer whose output asks the attention, then layers that also see what it answered, residual
    from the third on; a linear layer with the vocabulary. Source and target have embeddings of their own, and the
    classifier is a third matrix: only so does the printed size of the embeddings (265 MB) come out (S2 Reducer,
    Table 1). The reverse direction begins at the padding, as all sequences are equally long.
    """

    def __init__(self, *, vocabulary: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.source_embedding = nn.Embedding(vocabulary, width, padding_idx=PADDING)
        self.target_embedding = nn.Embedding(vocabulary, width, padding_idx=PADDING)
        self.forwards = _lstm(width, width)
        self.backwards = _lstm(width, width)
        self.encoder = nn.ModuleList(_lstm(2 * width if i == 0 else width, width) for i in range(layers - 1))
        self.first = _lstm(width, width)
        self.attention = _Attention(width)
        self.decoder = nn.ModuleList(_lstm(2 * width, width) for _ in range(layers - 1))
        self.classifier = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return next-token logits [N, T, vocabulary] of source and target tokens [N, 2, T]."""
        source, target = tokens.unbind(1)
        memory = self._read(self.dropout(self.source_embedding(source)))
        x, _ = self.first(self.dropout(self.target_embedding(target)))
        context = self.attention(x, memory, source == PADDING)
        for number, layer in enumerate(self.decoder):
            x = _residual(layer, self.dropout(torch.cat((x, context), dim=-1)), x if number > 0 else None)
        logits: Tensor = self.classifier(x)
        return logits

    def _read(self, x: Tensor) -> Tensor:
        x = torch.cat((self.forwards(x)[0], self.backwards(x.flip(1))[0].flip(1)), dim=-1)
        for number, layer in enumerate(self.encoder):
            x = _residual(layer, self.dropout(x), x if number > 0 else None)
        return x


def _lstm(inputs: int, width: int) -> nn.LSTM:
    return nn.LSTM(inputs, width, batch_first=True)


def _residual(layer: nn.Module, inputs: Tensor, shortcut: Tensor | None) -> Tensor:
    out: Tensor = layer(inputs)[0]
    return out if shortcut is None else out + shortcut


class _Attention(nn.Module):
    """Additive attention (Bahdanau et al. 2015): who asks and what is asked are added before the tanh."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, asks: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        """Return a mean of `memory` [N, S, width] for each of `asks` [N, T, width], without what is `padding`."""
        both = torch.tanh(self.query(asks)[:, :, None] + self.key(memory)[:, None])
        # A large number, not infinity: a sentence of padding alone would have no weights at all.
        scores = self.score(both).squeeze(-1).masked_fill(padding[:, None], -1e4)
        return functional.softmax(scores, dim=-1) @ memory
