"""The virtual engine: all ranks of a cluster take turns in one process here; their step is timed by simulation.

Quality is what so many real ranks would reach with the plan that the cluster's prices give. Times are simulated, since
what turns take says nothing of ranks that work at once.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ssfx.advice.cases import simulate_case
from ssfx.core.origin import Origin
from ssfx.core.rows import VIRTUAL, Row
from ssfx.lab.engines.base import engines
from ssfx.lab.engines.collect import collect
from ssfx.lab.engines.job import Job
from ssfx.lab.engines.launch import Launch, settings
from ssfx.lab.engines.simulate import row_of
from ssfx.lab.engines.torchrun import Torchrun

QUALITY = (
    "achieved_density",
    "tensor_missing_rate",
    "loss",
    "top1",
    "top5",
    "exact_match",
    "f1",
    "bleu",
    "perplexity",
    "perplexity_per_word",
    "steps_to_target",
    "skipped_steps",
)
"""Metrics that virtual ranks measure; all others of a row are simulated."""
COUNTED = ("contributed_bytes", "sent_bytes")
"""Metrics that they count, where they are as many as the cluster has."""


class VirtualLaunch(Launch):
    """One process, in which the ranks of each job take turns."""

    def row(self, job: Job, code: Mapping[str, Any]) -> Row:
        """Return the row of a finished job: quality as measured, times as simulated."""
        case = job.case
        measured = collect(job, "simulated", code, settings(case.threads))
        target, step = simulate_case(case)
        simulated = row_of(case, target, step, code)
        kept = QUALITY + (COUNTED if case.trained_ranks == case.world_size else ())
        metrics = {**simulated.metrics, **{name: measured.metrics[name] for name in kept if name in measured.metrics}}
        iteration_s = step.iteration_s
        if "steps_to_target" in metrics:
            steps = metrics["steps_to_target"]
            metrics["time_to_target_s"] = None if steps is None else steps * iteration_s
        curve = dict(measured.curve)
        if curve:
            del curve["time_s"]  # of turns
            curve["simulated_time_s"] = [None if done is None else done * iteration_s for done in curve["step"]]
        said = (
            f"quality measured on {case.trained_ranks} virtual ranks in one process ({case.virtual}), times simulated "
            f"on {case.cluster} with plan {step.plan.digest}"
        )
        manifest = {
            **simulated.manifest,
            **measured.manifest,
            "plan_digest": step.plan.digest,
            "background_cores": None,
            "trained_plan_digest": measured.manifest["plan_digest"],
            "trained_ranks": case.trained_ranks,
            "notes": [*measured.manifest["notes"], said],
        }
        origin = Origin("simulated", simulated.origin.hardware, measured.origin.date, said, measured.origin.versions)
        return Row(case.run_id, case, metrics, origin, manifest, {}, measured.density_ratios, curve)

    def _commands(self, batch: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
        command = [sys.executable, "-m", "ssfx.lab.worker.virtual", str(batch)]
        yield command, settings(self._jobs[0].case.threads)


class Virtual(Torchrun):
    """Runs each case like Torchrun, but all its ranks in one process, on the CPU or one GPU."""

    name = "virtual"
    summary = "all ranks of a cluster in one process: quality as measured, times as simulated"
    kind = VIRTUAL
    _starts = VirtualLaunch


engines.add(Virtual())
