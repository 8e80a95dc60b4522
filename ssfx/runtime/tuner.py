"""Searching for a plan by training with candidates: MergeComp's measured mode, between the steps of a real run."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import torch

from ssfx.collectives.comm import Comm
from ssfx.core import accelerator
from ssfx.schemes.online_planning import CutSearch
from ssfx.schemes.search.measured_search import MeasuredSearch, probe_options


class Tuner:
    """Trains `probe_steps` iterations with each cut that the search proposes and hands it rank 0's mean seconds.

    The iteration in which a plan is installed does not count. Residuals belong to parameters and survive every change.
    """

    def __init__(self, comm: Comm, search: CutSearch, num_tensors: int, probe_times_s: Sequence[float] = ()) -> None:
        self._comm = comm
        self._probe_steps = search.probe_steps
        self._search = MeasuredSearch(
            num_tensors, step=search.stride, warmup=search.warmup_probes, probe_times_s=probe_times_s
        )
        self._iters = -1
        self._began = 0.0

    @property
    def probe_times_s(self) -> list[float]:
        """The seconds of all probes so far: all that a resumed search needs."""
        return self._search.probe_times_s

    @property
    def finished(self) -> bool:
        """True when the last cut that was proposed is the answer."""
        return self._search.finished

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the scheme's options that plan the cut to train with now."""
        return probe_options(given, self._search.cut)

    def end_step(self) -> bool:
        """Note the end of an iteration; return whether another cut is to be trained with from the next one on."""
        accelerator.wait(self._comm.device)
        self._iters += 1
        if self._iters == 0:
            self._began = perf_counter()
        if self._iters < self._probe_steps:
            return False
        mean_s = (perf_counter() - self._began) / self._probe_steps
        agreed = torch.tensor([mean_s], dtype=torch.float64, device=self._comm.device)
        before, self._iters = self._search.cut, -1
        self._search.add(float(self._comm.broadcast(agreed).wait()))
        return self._search.cut != before
