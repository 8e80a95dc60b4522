"""One small file of every kind that keeps a result or a calibration, and what each of them is read by."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.common.cli.status import run_counts
from experiments.common.figures.drawing import MANIFEST, _manifest
from experiments.common.validation.recorded import _plans_in
from ssfx.core.case import Case
from ssfx.core.files import loads, read, write_json
from ssfx.core.origin import Origin
from ssfx.core.rows import Row
from ssfx.lab.cli.overlay import _events
from ssfx.lab.engines.collect import collect
from ssfx.lab.engines.job import Job
from ssfx.lab.results import step_logs
from ssfx.lab.results.store import Store, export, read_rows
from ssfx.lab.worker.faults import fired
from ssfx.lab.worker.heartbeat import Heartbeat, read_beat
from ssfx.lab.workloads.checkpoint import Checkpoints
from ssfx.lab.workloads.on_disk.prepared import VERSION, prepared
from ssfx.lab.workloads.record import StepRecord
from ssfx.perf_model.operator_counts import COLUMNS, ModelWork
from ssfx.perf_model.recorded_times import joined
from ssfx.perf_model.saved_profiles import _read as saved_profile_read
from ssfx.perf_model.saved_profiles import saved_profile
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.costs import CompressorTimes, Costs, Curve, ring_exchange
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, TensorSpec
from ssfx.planning.profile import Profile
from ssfx.runtime.stats import Tracer

ORIGIN = Origin("measured", "a machine", "2026-01-01", "a note")
TENSORS = tuple(TensorSpec(f"layer{i}", (10, 10 + i)) for i in range(3))
CURVE = Curve((1.0, 1000.0, 1e6), (1.25e-05, 3.75e-05, 0.0125))
RECORD = StepRecord(
    step=0,
    iteration_s=1.25,
    forward_s=0.25,
    backward_s=0.5,
    sparsify_s=0.125,
    exposed_comm_s=0.125,
    step_s=0.0625,
    other_s=0.1875,
    comm_s=0.25,
    loss=2.75,
    contributed_bytes=1234,
    sent_bytes=5678,
    achieved_density=0.0125,
    tensor_missing_rate=0.5,
    skipped=False,
)


@dataclass(frozen=True)
class Kept:
    """A file, and what reads it."""

    path: Path
    read: Callable[[], Any]


class _Claim:
    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir


def every_kind(root: Path) -> dict[str, Kept]:
    """Write all of them below `root`; the cache of ssfx must be there, too."""
    kept: dict[str, Kept] = {}
    case = Case("fuzz", "m", "d", "ddp", "local", 2, 4, steps=6, warmup_steps=2, lr=0.05)
    _run(root, case, kept)
    _rows(root, case, kept)
    _calibrations(root, kept)
    _caches(root, kept)
    return kept


def _run(root: Path, case: Case, kept: dict[str, Kept]) -> None:
    store = Store(root, root / "reference")
    job = Job(case, _Claim(store.run_dir(case)), 1)  # type: ignore[arg-type]
    folder = job.attempt_dir
    folder.mkdir(parents=True)
    write_json(job.run_dir / "case.json", case.to_json())
    kept["case"] = Kept(job.run_dir / "case.json", lambda: dict(run_counts(store)))

    def collected() -> Row:
        return collect(job, "measured", {"version": "1"}, {})

    for rank in (0, 1):
        lines = [replace(RECORD, step=step).to_json() for step in range(case.steps)]
        (folder / f"rank{rank}.jsonl").write_text("".join(f"{line}\n" for line in lines))
        kept[f"steps{rank}"] = Kept(folder / f"rank{rank}.jsonl", collected)
        result = {
            "rank": rank,
            "metrics": {"top1": 0.75},
            "dataset_fingerprint": "d",
            "plan_digest": "p",
            "first_step": 0,
            "notes": [],
            "peak_memory_bytes": 1000 + rank,
            "gpus": [],
            "started": "2026-01-01T00:00:00+00:00",
            "stopped": "2026-01-01T00:00:10+00:00",
            "wall_s": 10.0,
            "machine_busy_s": 19.0,
            "own_busy_s": 8.0,
            "cores": [rank],
        }
        write_json(folder / f"result-rank{rank}.json", json.dumps(result))
        kept[f"result{rank}"] = Kept(folder / f"result-rank{rank}.json", collected)
    step_logs.seal(folder)
    kept["digests of steps"] = Kept(folder / step_logs.NAME, collected)
    kept["records"] = Kept(folder / "rank0.jsonl", lambda: (setattr(job, "_read_bytes", 0), job.new_records())[1])
    report = {"rank": 1, "phase": "step", "step": 3, "time": 12.5, "error": "ValueError: no", "traceback": ""}
    write_json(folder / "failure-rank1.json", json.dumps(report))
    kept["failure"] = Kept(folder / "failure-rank1.json", job.failures)
    Heartbeat(folder, 0).beat(3, "step")
    kept["heartbeat"] = Kept(folder / "rank0.state", lambda: read_beat(folder, 0))
    plan = Plan(
        scheme="ddp",
        world_size=2,
        tensors=TENSORS,
        launch_order=((0, 0),),
        buckets=(Bucket((Lane("all_reduce", (Segment(tuple(spec.name for spec in TENSORS)),)),)),),
    )
    costs = Costs(2, CURVE, CURVE, CURVE, ring_exchange(2, 1e-4, 1e-9), ORIGIN)
    profile = Profile("m", TENSORS, (0.125, 0.25, 0.5), 0.375, ORIGIN, 4, "cpu")
    parts: tuple[tuple[str, Any], ...] = (("plan", plan), ("costs", costs), ("profile", profile))
    for name, part in parts:
        write_json(folder / f"{name}.json", part.to_json())
        path, parse = folder / f"{name}.json", type(part).from_json
        kept[name] = Kept(path, lambda path=path, parse=parse: read(path, parse))  # type: ignore[misc]
    trace = Tracer(True, 0)
    trace.begin(0, 0.0)
    trace.span("forward", 0.0, 1.5)
    trace.save(folder / "trace-rank0.json")
    kept["trace"] = Kept(folder / "trace-rank0.json", lambda: _events(folder / "trace-rank0.json"))
    other = root / "runs" / "0123456789ab" / "attempt-1"
    other.mkdir(parents=True)
    write_json(other / "fault-rank0.json", json.dumps({"kind": "nan", "rank": 0, "step": 3, "phase": "forward"}))
    kept["fault"] = Kept(other / "fault-rank0.json", lambda: fired(other.parent))
    _checkpoints(job.run_dir / "checkpoint", kept)


def _checkpoints(folder: Path, kept: dict[str, Kept]) -> None:
    checkpoints = Checkpoints(folder, {"run": "abc", "data": "def"})
    for step in (2, 4):
        checkpoints.save(step, {"tensor": torch.full((50,), 1.25 * step), "step": step})

    def loaded() -> Any:
        found = checkpoints.load()
        if found.state is None:
            return found.step, found.skipped
        assert found.state["step"] == found.step
        assert torch.equal(found.state["tensor"], torch.full((50,), 1.25 * found.step))
        return found.step, found.skipped

    kept["checkpoint"] = Kept(folder / "step-4" / "COMPLETE", loaded)
    kept["state"] = Kept(folder / "step-4" / "rank0.pt", loaded)


def _rows(root: Path, case: Case, kept: dict[str, Kept]) -> None:
    store = Store(root / "done", root / "reference")
    rows = []
    for seed in range(3):
        one = replace(case, seed=seed)
        metrics = {"iteration_s": 0.5 + seed, "loss": 2.25, "top1": None}
        curve = {"step": [1.0, 2.0], "loss": [2.5, None]}
        rows.append(
            Row(one.run_id, one, metrics, ORIGIN, {"attempt": 1}, {"iteration_s": [0.5, 0.75]}, {"4": 5}, curve)
        )
    store.save(rows[0])
    kept["row"] = Kept(store.run_dir(rows[0].case) / "row.json", lambda: store.row(rows[0].case))
    kept["all rows"] = Kept(store.run_dir(rows[0].case) / "row.json", store.rows)
    export(rows, root / "reference" / "fuzz.jsonl")
    kept["reference"] = Kept(root / "reference" / "fuzz.jsonl", lambda: read_rows(root / "reference" / "fuzz.jsonl"))
    write_json(root / "plans.json", f"[\n{read(kept['plan'].path, Plan.from_json).to_json()}\n]")
    kept["plans"] = Kept(root / "plans.json", lambda: _plans_in(root / "plans.json"))


def _calibrations(root: Path, kept: dict[str, Kept]) -> None:
    times = CompressorTimes(CURVE, CURVE, CURVE, ORIGIN, segment_s=1.25e-05)
    system = TimingModel("local", 2, {}, {"all_reduce": CURVE, "all_gather": CURVE}, ORIGIN, burst_s=0.125)
    network, compressors = root / "local-x2.json", root / "compressors-x2.json"
    write_json(network, system.to_json())
    write_json(compressors, replace(system, codecs={"dgc": times}).to_json())
    kept["network"] = Kept(network, lambda: joined(network, compressors))
    kept["compressors"] = Kept(compressors, lambda: joined(network, compressors))
    write_json(root / "points.json", json.dumps([{"size": 4, "seconds": [0.25, 0.5]}]))
    kept["points"] = Kept(root / "points.json", lambda: read(root / "points.json", loads))
    read(root / "runs" / next(root.glob("runs/*/attempt-1/profile.json")), Profile.from_json).save(root / "own.json")

    def own() -> Profile:
        saved_profile_read.cache_clear()
        return saved_profile(str(root / "own.json"))

    kept["own profile"] = Kept(root / "own.json", own)
    counts = ((1.0,) * len(COLUMNS),)
    work = ModelWork("m", "x", 4, "sgd", TENSORS, counts, (0, 0, 0), (0, 0, 0), 100, 0, {"torch": "2"})
    write_json(root / "work.json", work.to_json())
    kept["work"] = Kept(root / "work.json", lambda: read(root / "work.json", ModelWork.from_json))


def _caches(root: Path, kept: dict[str, Kept]) -> None:
    def arrays() -> Any:
        found = prepared("fuzz", lambda: {"tokens": np.arange(300)})
        return {name: array.tolist() for name, array in found.items()}

    arrays()
    folder = next(root.rglob(f"fuzz-v{VERSION}"))
    kept["cache"] = Kept(folder / "tokens.npy", arrays)
    kept["cache digests"] = Kept(folder / "digests.json", arrays)
    (root / "figures").mkdir()
    entry = {"inputs": "abc", "missing": False, "files": {"a.csv": "123"}}
    write_json(root / "figures" / MANIFEST, json.dumps({"ssfusion.fig3": entry}, indent=1))
    kept["drawn"] = Kept(root / "figures" / MANIFEST, lambda: _manifest(root / "figures"))
