"""Density warm-up: start dense, end sparse."""


def warmup_density(epoch: int, density: float, epochs: int, coefficient: float | None = None) -> float:
    """Return the density of `epoch` (from 0): coefficient^(epoch + 1), never below `density`, final after `epochs`.

    The default coefficient reaches `density` in equal ratios; 0.25 over 4 epochs is the schedule of the DGC paper.
    Source: D-21, Lin et al. 2018.
    """
    if epoch >= epochs:
        return density
    ratio = density ** (1 / (epochs + 1)) if coefficient is None else coefficient
    return max(ratio ** (epoch + 1), density)
