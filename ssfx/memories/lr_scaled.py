"""Residual error feedback that follows the learning rate."""

from __future__ import annotations

from ssfx.memories.base import memories
from ssfx.memories.residual import Residual, ResidualOptions


@memories.register(ResidualOptions())
class LRScaled(Residual):
    """a = decay * (r' / r) * e + gain * g, r being the learning rate and r' that of e (codec specification 3.4).

    Under SGD the parameters are at every step those of accumulating r * g (specification 3.3), while the optimizer
    keeps its rate. `ssfx.memories.rates.Rates` applies r' / r to the committed residual before the step.
    """

    name = "lr_scaled"
    summary = "residual error feedback that is rescaled when the learning rate changes"
    source = "codecs spec 3.3, 3.4; Zheng et al. 2019, MiCRO algorithm 1"
    follows_rate = True
