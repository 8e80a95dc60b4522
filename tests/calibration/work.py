"""What ranks of the pool do: the measuring functions at their smallest."""

import math
from dataclasses import asdict
from typing import Any
from unittest.mock import patch

from ssfx.collectives.torch_comm import TorchComm
from ssfx.lab.calibration import measure, measure_exchange
from ssfx.lab.calibration.measure import overhead_times
from ssfx.lab.calibration.measure_compressors import codec_points
from ssfx.lab.calibration.measure_exchange import PRIMITIVES, exchange_points


def exchanges(group: Any, rank: int, world: int) -> list[dict[str, Any]]:
    # On a busy machine, too, everything is measured, and a few calls are enough to see that it is.
    # Undisturbed passes count as 0 s, so that what exchanges cost the passes does not depend on what else runs here.
    undisturbed = patch.object(measure_exchange._Backward, "_pass_s", lambda self, span: 0.0)
    limits = patch.multiple(measure_exchange, LONGEST_S=math.inf, _BUDGET_S=0.02, _MOST_UNDER_COMPUTE=5)
    with undisturbed, limits:
        return [asdict(point) for point in exchange_points(TorchComm(group), 64, PRIMITIVES)]


def codecs(group: Any, rank: int, world: int, names: list[str]) -> dict[str, Any]:
    return {name: asdict(codec_points(name, 0.01, TorchComm(group), max_numel=2**10)) for name in names}


def overheads(group: Any, rank: int, world: int) -> dict[str, float]:
    with patch.multiple(measure, _MANY=12, _STEPS=3, _PASSES=3, _JOBS=3):
        return asdict(overhead_times(TorchComm(group)))
