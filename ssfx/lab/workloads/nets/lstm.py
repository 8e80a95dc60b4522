"""LSTM language models."""

from torch import Tensor, nn


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
