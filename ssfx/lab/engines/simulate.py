"""The simulate engine: one step of every case in virtual time, many of them on all cores."""

import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from ctypes import CDLL
from dataclasses import asdict
from functools import partial
from time import perf_counter
from typing import Any

from ssfx.advice.cases import memory_of, simulate_case
from ssfx.compressors import build
from ssfx.core import machine
from ssfx.core.case import Case
from ssfx.core.errors import RunError
from ssfx.core.files import own_folder, write_atomic, write_json
from ssfx.core.origin import Origin
from ssfx.core.progress import announce, doing
from ssfx.core.rows import Row
from ssfx.lab.engines.base import Engine, engines
from ssfx.lab.results.manifest import code, now, versions
from ssfx.lab.results.sent_methods import methods_of
from ssfx.lab.results.store import Store
from ssfx.perf_model.devices import device as data_sheet
from ssfx.perf_model.devices import has_sheet
from ssfx.perf_model.recorded_times import measured_on
from ssfx.perf_model.target import Target
from ssfx.simulator import Simulated
from ssfx.simulator.pricing.device_memory import memory_bytes
from ssfx.simulator.trace import chrome_trace

TOGETHER = 200
"""Cases that are computed before the first of them is saved, so that a wrong one leaves nothing behind."""

ENOUGH = 24
"""Cases that are worth a further process."""
_PARTS = 4
"""Parts of the cases that each process gets, one after the other: some models take longer than others."""
_PR_SET_PDEATHSIG = 1


class Simulate(Engine):
    """Computes each case on the target that its calibration names. Deterministic; there is nothing to wait for."""

    name = "simulate"
    summary = "virtual time: the same plans on the costs and profiles of clusters that need not be here"
    kind = "simulated"

    def run(
        self,
        cases: Sequence[Case],
        store: Store,
        *,
        progress: bool = True,
        stall_timeout_s: float | None = None,
        jobs: int = 1,
        fail_fast: bool = False,
    ) -> list[Row]:
        """Return one row per case; see Engine. Nothing can hang, and the first wrong case ends all in any event.

        All cores are used in any event, so `jobs` is refused where the configuration is read.
        """
        began = perf_counter()
        rows = {case.run_id: row for case in cases if (row := store.row(case)) is not None}
        todo = list({case.run_id: case for case in cases if case.run_id not in rows}.values())
        started_with = code() if todo else {}
        for done in range(0, len(todo), TOGETHER):
            group = todo[done : done + TOGETHER]
            with doing(f"simulating {done + 1} to {done + len(group)} of {len(todo)} runs"):
                computed = _computed(group, started_with)
            for row, step in computed:
                try:
                    _keep(row, step, store)
                except OSError as error:
                    raise RunError(f"cannot keep results in {store.runs}: {error}") from error
                rows[row.run_id] = row
        if progress and todo:
            print(f"simulated {len(todo)} runs in {perf_counter() - began:.1f} s", file=sys.stderr)
        return [rows[case.run_id] for case in cases]


Computed = tuple[Row, Simulated | None]
"""A row, and its step where that is to be traced."""


def _computed(cases: Sequence[Case], started_with: dict[str, object]) -> list[Computed]:
    """Return one row per case, in order; the first wrong case's ConfigError is raised.

    Processes are forked, because importing everything again would take one as long as its share of the cases.
    """
    compute = partial(_compute, started_with)
    processes = min(machine.cores(), len(cases) // ENOUGH)
    if processes < 2 or not sys.platform.startswith("linux") or threading.active_count() > 1:
        return [compute(case) for case in cases]
    from concurrent.futures import ProcessPoolExecutor  # late: few commands simulate so many cases
    from multiprocessing import get_context

    announce(f"simulating {len(cases)} runs in {processes} processes")
    size = -(-len(cases) // (_PARTS * processes))
    with ProcessPoolExecutor(processes, get_context("fork"), _end_with_parent) as pool:
        return list(pool.map(compute, cases, chunksize=size))


def _end_with_parent() -> None:
    """Ctrl-C is left to the parent, and what ends it ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _compute(started_with: dict[str, object], case: Case) -> Computed:
    with doing(f"planning and simulating {case.label}"):
        target, step = simulate_case(case)
    return row_of(case, target, step, started_with), step if case.trace else None


def row_of(case: Case, target: Target, step: Simulated, started_with: Mapping[str, object]) -> Row:
    """Return the row of a case whose step was simulated on `target`; `started_with`: what `manifest.code` said."""
    profile, system = target.profile, target.system
    manifest: dict[str, Any] = {
        "code": dict(started_with),
        "versions": versions(),
        "exit_reason": "finished",
        "plan_digest": step.plan.digest,
        "calibration": system.origin.kind,
        "system": {"name": system.name, "digest": target.system_digest, "origin": asdict(system.origin)},
        "profile": {
            "device": profile.device,
            "batch_size": profile.batch_size,
            "ranks": profile.ranks,
            "origin": asdict(profile.origin),
        },
        "alone_s": profile.alone_s(),
        "methods": methods_of(step.plan),
        "critical_s": step.critical_s(),
        "contention_s": step.slowdown_s(),
        "extrapolated": list(step.outside),
        "assumptions": "every compressor sends as many elements as it is asked for, no two ranks select the same; "
        "memory costs what a residual does",
    }
    metrics = step.metrics(case.world_size * case.batch_size * case.accumulate)
    if (
        has_sheet(profile.device) and data_sheet(profile.device).pcie_gbps
    ):  # a host's memory is shared with more than training
        needed = memory_bytes(
            case.model,
            case.batch_size,
            case.optimizer,
            residual_copies=_residuals(case),
            fused_attention=True,
            precision=case.precision,
        )
        metrics["peak_memory_bytes"] = needed.total
        manifest["device_memory_bytes"] = round(data_sheet(profile.device).memory_gib * 2**30)
        whole = memory_of(case, target, step, profile.device)
        manifest["needed_bytes"] = whole and whole.total
        if whole and whole.sharded:
            metrics["peak_memory_bytes"] = whole.total
    hardware = f"{target.cluster.device} devices ({_of('costs', system.origin)}, {_of('profile', profile.origin)})"
    return Row(case.run_id, case, metrics, Origin("simulated", hardware, now(), versions=versions()), manifest)


def _of(what: str, origin: Origin) -> str:
    return f"{origin.kind} {what}{measured_on(origin)}"


def _residuals(case: Case) -> int:
    """Return the copies of the gradient that are kept: a residual where the compressor has one, no other memory."""
    if case.compressor is None:
        return 0
    compressor = build(case.compressor)
    return 1 if compressor.error_feedback and not compressor.lossless else 0


def _keep(row: Row, step: Simulated | None, store: Store) -> None:
    """Leave the files of a run, row.json last; those of a `step` that was traced."""
    run_dir = store.run_dir(row.case)
    own_folder(run_dir)
    write_json(run_dir / "case.json", row.case.to_json())
    if step is not None:
        attempt = run_dir / "attempt-1"
        own_folder(attempt)
        write_json(attempt / "plan.json", step.plan.to_json())
        write_atomic(attempt / "trace-rank0.json", chrome_trace({row.case.label: step}))
    store.save(row)


engines.add(Simulate())
