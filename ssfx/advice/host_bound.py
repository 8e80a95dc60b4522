"""What is left of a gain where the host, not the GPU, sets the pace of a step: nominal times know no host."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ssfx.advice.ranked import Ranking, surely_less
from ssfx.perf_model.cautions import SEEN, without_host
from ssfx.perf_model.measured_gpus import measured_gpu


@dataclass(frozen=True)
class HostBound:
    """`factor`: how many times as long as the GPU is busy eager steps took at most on the GPU `SEEN`. `gain`: how much
    shorter a step of the best scheme is then, as a share; `sure`: whether that exceeds the error of the simulator.
    """

    factor: float
    gain: float
    sure: bool

    def __str__(self) -> str:
        return (
            f"where the host holds steps {self.factor:.1f} times longer than the GPU is busy, as it did at worst on "
            f"one {SEEN.upper()}, {max(0.0, self.gain):.1%} shorter"
        )


def host_bound(advice: Ranking) -> HostBound | None:
    """Return what the host may leave of the gain of the best scheme that compresses; None where steps were measured."""
    setting = advice.setting
    best = next(iter(advice.recommendable), None)
    if best is None or not without_host(setting.profile, setting.cluster):
        return None
    factor = measured_gpu(SEEN).beyond_busy()[1]
    profile = setting.profile
    slower = replace(
        setting,
        profile=replace(
            profile, forward_s=factor * profile.forward_s, step_s=factor * profile.step_s,
            ready_gap_s=tuple(factor * gap_s for gap_s in profile.ready_gap_s),
        ),
    )  # fmt: skip
    dense_s = slower.trial(advice.dense.scheme, advice.dense.trial.options).iteration_s
    best_s = slower.trial(best.scheme, best.trial.options).iteration_s
    return HostBound(factor, 1 - best_s / dense_s, surely_less(best_s, dense_s, advice.bar(best)))
