"""How far the simulator can be trusted: predicted against real times that its calibration has not seen."""

from experiments.common.validation.scores import Pair, Scores, score

__all__ = ["Pair", "Scores", "score"]
