"""The groups of predictions that `ssfx validate` scores, by the kind of their ground truth."""

from __future__ import annotations

from experiments.common.validation.exchanges import NAME, exchanges
from experiments.common.validation.groups import Group, recorded
from experiments.common.validation.one_gpu import NAME as GPU
from experiments.common.validation.one_gpu import one_gpu
from experiments.common.validation.published import published
from ssfx.core.errors import unknown

NAMES = ("recorded", "published", NAME, GPU)


def load(name: str) -> list[Group]:
    """Return the groups called `name`, one of NAMES; RunError when there is no ground truth for them."""
    if name not in NAMES:
        raise unknown("group", name, NAMES)
    return {"recorded": recorded, "published": published, NAME: exchanges, GPU: one_gpu}[name]()
