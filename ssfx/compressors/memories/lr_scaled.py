"""Residual error feedback that follows the learning rate."""

from ssfx.compressors.memories.base import memories
from ssfx.compressors.memories.residual import Residual, ResidualOptions


@memories.register(ResidualOptions())
class LRScaled(Residual):
    """a = decay * (r' / r) * e + gain * g, r being the learning rate and r' that of e (D-15).

    Under SGD the parameters are at every step those of accumulating r * g (D-15), while the optimizer
    keeps its rate. `ssfx.compressors.memories.rates.Rates` applies r' / r to the committed residual before the step.
    """

    name = "lr_scaled"
    summary = "residual error feedback that is rescaled when the learning rate changes"
    source = "Zheng et al. 2019, MiCRO algorithm 1; D-15"
    follows_rate = True
