"""The learning rate of every step, as a pure function of its number: a resumed run needs to know nothing else."""

import math

from ssfx.core.case import Case

STEP_FACTOR = 0.1
"""What the learning rate is multiplied by at every milestone of schedule=step, as in He et al. 2016, section 3.4."""


def learning_rate(case: Case, step: int) -> float:
    """Return the learning rate with which step number `step` (from 0) of `case` updates the weights.

    The peak is `lr`, times the ranks with `scale_lr_by_ranks`. In the first `lr_warmup` of the run it is approached
    linearly: from `lr` if it is scaled (Goyal et al. 2017, section 2.2), else from 0 (Devlin et al. 2019, appendix A).
    After that, with the fraction of the whole run that is done, `step` takes a tenth at each of `milestones`; with the
    fraction of what is left after the warm-up, `linear` falls to 0 in a straight line and `cosine` in half a period.
    """
    peak = case.lr * case.world_size if case.scale_lr_by_ranks else case.lr
    warmup = round(case.lr_warmup * case.steps)
    if step < warmup:
        start = case.lr if case.scale_lr_by_ranks else 0.0
        return start + (peak - start) * (step + 1) / warmup
    if case.schedule == "step":
        return peak * STEP_FACTOR ** sum(step >= at * case.steps for at in case.milestones)
    done = (step - warmup) / max(1, case.steps - warmup)
    if case.schedule == "linear":
        return peak * (1 - done)
    if case.schedule == "cosine":
        return peak * (1 + math.cos(math.pi * done)) / 2
    return peak
