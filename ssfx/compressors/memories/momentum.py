"""Momentum: selections are made from a local momentum of the gradients, and what is sent leaves it."""

from dataclasses import dataclass

from ssfx.compressors.memories.base import memories
from ssfx.compressors.memories.residual import Residual, ResidualOptions


@dataclass(frozen=True)
class MomentumOptions(ResidualOptions):
    """`decay` in [0, 1): the weight of the past, DeMo's; 1 would be the residual, which forgets nothing.

    At a density d an element waits for 1/d steps on average: with 0.9 what waits for 100 steps is forgotten.
    """

    decay: float = 0.999

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decay == 1:
            raise ValueError("decay=1 forgets nothing; use memory=residual")


@memories.register(MomentumOptions())
class Momentum(Residual):
    """m = decay * m + gain * g is compressed; after sending, m <- m - decoded payload.

    A residual that forgets: a gradient that is not sent in k steps counts decay^k of itself. What ranks sent and have
    in memory is so the decayed sum of their gradients, not the sum. The optimizer sees what arrives, whatever it is.
    """

    name = "momentum"
    summary = "local momentum before compression, from which what is sent is taken: old gradients fade"
    source = "Peng et al. 2024 (DeMo), Algorithm 1, without its cosine transform"
