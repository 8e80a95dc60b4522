"""The process that torchrun starts: it works through a batch of cases and leaves one result file per case and rank.

`python -m ssfx.lab.worker.rank batch.json`, under torchrun. The batch names the run directories and attempts; each case
is read from its directory's case.json. Everything the launcher learns, it learns from files in the attempt directories.
"""

import faulthandler
import gc
import importlib
import json
import os
import random
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ssfx.core import accelerator, machine
from ssfx.core.case import Case
from ssfx.core.errors import RunError
from ssfx.core.files import created, loads, of_writing, own_folder, read, write_json
from ssfx.lab.results.manifest import busy_s, now
from ssfx.lab.worker.faults import Injector
from ssfx.lab.worker.heartbeat import Heartbeat
from ssfx.lab.worker.stop import StopRequests, die_with_launcher
from ssfx.lab.workloads.record import StepRecord
from ssfx.lab.workloads.sharded import ShardedExchange
from ssfx.lab.workloads.train import StoppedAtCheckpoint
from ssfx.runtime.attach import attach
from ssfx.runtime.outer import OuterSync
from ssfx.runtime.sync import Sync
from ssfx.sharded.sync import ShardedSync

COLLECTIVE_TIMEOUT_S = 60
WAIT_S = 0.05


def main(batch_file: str) -> None:
    """Run every case of the batch on this rank; end the process with code 1 at the first failure."""
    batch = read_batch(batch_file)
    rank = int(os.environ["RANK"])
    die_with_launcher()
    task = RankRun(batch["jobs"][0], rank)
    try:
        _join(task.case, batch["store"])
        watch_kernels(batch["jobs"], lambda starts: task.compiling(starts))
        for number, job in enumerate(batch["jobs"]):
            if number:
                task = RankRun(job, rank)
            task.run(batch["train"])
        dist.destroy_process_group()
    except StoppedAtCheckpoint as stopped:
        task.stopped(stopped.step)
        os._exit(0)  # nothing is worth the seconds that an orderly end of torch takes
    except BaseException as error:
        task.fail(error)
        # Not sys.exit: an exchange that waits for a dead peer must not delay the end of this rank.
        os._exit(1)


class RankRun:
    """One case on one rank: its heartbeat, step log, fault and result."""

    def __init__(self, job: Mapping[str, Any], rank: int) -> None:
        self.run_dir = Path(job["run_dir"])
        self.attempt_dir = self.run_dir / f"attempt-{job['attempt']}"
        own_folder(self.attempt_dir)
        self.rank = rank
        self.step = 0
        self.phase = "setup"
        self.heartbeat = Heartbeat(self.attempt_dir, rank)
        # Kept open on purpose: stacks are dumped on SIGUSR2 (a hang) and SIGTERM (ended because of another rank).
        self._stacks = created(self.attempt_dir / f"stacks-rank{rank}.txt")
        faulthandler.register(signal.SIGUSR2, file=self._stacks)
        faulthandler.register(signal.SIGTERM, file=self._stacks, chain=True)
        self.case = _case_in(self.run_dir)
        self._sync: Sync | ShardedExchange | OuterSync | None = None
        self._handles: list[Any] = []
        self._where: dict[str, Any] = {}
        """Further arguments of `attach` on this rank."""
        self._inject = Injector(rank, self.run_dir, self.attempt_dir)

    def set_phase(self, phase: str) -> None:
        """Publish what this rank does now."""
        self.phase = phase
        if phase == "forward" and self._sync is not None:
            self.step = max(self.step, self._sync.step)  # a resumed run does not begin at step 0
        self.heartbeat.beat(self.step, phase)
        self._inject(self.step, phase)

    def compiling(self, starts: bool) -> None:
        """Publish that kernels are compiled now, or that this rank goes on with what it did."""
        self.heartbeat.beat(self.step, "compile" if starts else self.phase)

    def run(self, train: str) -> None:
        """Train and evaluate the case; its result file exists afterwards."""
        started, before = now(), (time.perf_counter(), busy_s(), time.process_time())
        _seed(self.case.seed)
        _reset_peak_memory(self.case.trains_on)
        self.set_phase("setup")
        with created(self.attempt_dir / f"rank{self.rank}.jsonl") as log:
            requests = self._requests()

            def on_step(record: StepRecord) -> bool:
                line = record.to_json() + "\n"
                try:
                    log.write(line)
                    log.flush()
                except OSError as error:
                    raise of_writing(error, Path(log.name), len(line)) from None
                last = requests.after(record.step)
                self._end_step(record.step + 1, last)
                return last

            outcome = self._train(_resolve(train), on_step)
        after = (time.perf_counter(), busy_s(), time.process_time())
        wall_s, machine_s, own_s = (b - a for a, b in zip(before, after, strict=True))
        self._save_plan()
        result = {
            "rank": self.rank,
            "metrics": outcome.metrics,
            "dataset_fingerprint": outcome.data_fingerprint,
            "first_step": outcome.first_step,
            "notes": outcome.notes,
            "plan_digest": self._sync.plan.digest if self._sync else None,
            "peak_memory_bytes": _peak_memory(self.case.trains_on),
            "gpus": accelerator.names(self.case.trains_on),
            "started": started,
            "stopped": now(),
            "wall_s": wall_s,
            "machine_busy_s": machine_s,
            "own_busy_s": own_s,
            "cores": machine.own_cores(),
        }
        write_json(self.attempt_dir / f"result-rank{self.rank}.json", json.dumps(result))
        self._wait_for("result")

    def _train(self, train: Callable[..., Any], on_step: Callable[[StepRecord], bool]) -> Any:
        return train(self.case, on_step, self._attach, checkpoint_dir=self.run_dir / "checkpoint")

    def _requests(self) -> StopRequests:
        one_machine = os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]
        requests = StopRequests(self.attempt_dir, self.rank, one_machine=one_machine)
        requests.listen()
        return requests

    def _wait_for(self, kind: str) -> None:
        # Rank 0 evaluates alone, for as long as it takes. Waiting for it in a collective would end in a timeout, and
        # going on would let a failure in the next case end the evaluation of this one.
        left = [self.attempt_dir / f"{kind}-rank{rank}.json" for rank in range(self.case.world_size)]
        while not all(path.exists() for path in left):
            time.sleep(WAIT_S)
        self._drop_stacks()

    def _drop_stacks(self) -> None:
        if not self._stacks.tell():
            Path(self._stacks.name).unlink()

    def _attach(self, model: Any, optimizer: Any, **options: Any) -> Any:
        """ssfx.attach, with the phases, the plan and the trace kept for this attempt."""
        found = attach(model, optimizer, trace=self.case.trace, **options, **self._where)
        self._sync = ShardedExchange(found, model, self.case) if isinstance(found, ShardedSync) else found
        self._handles = observe_phases(model, optimizer, self.set_phase)
        self._save_plan()
        return self._sync

    def stopped(self, step: int) -> None:
        """Leave word that the run goes on from the checkpoint after `step` finished steps."""
        write_json(self.attempt_dir / f"stopped-rank{self.rank}.json", json.dumps({"step": step}))
        self._wait_for("stopped")

    def _end_step(self, finished: int, last: bool) -> None:
        self.step = finished
        if finished == self.case.steps:
            for handle in self._handles:  # evaluation is another phase, even if the model trains in it
                handle.remove()
            self.set_phase("evaluate")
        else:
            every = self.case.checkpoint_every
            self.set_phase("checkpoint" if last or (every and finished % every == 0) else "data")

    def _save_plan(self) -> None:
        sync = self._sync
        if sync is None:
            return
        if self.case.trace:
            sync.tracer.save(self.attempt_dir / f"trace-rank{self.rank}.json")
        if self.rank == 0:
            for name, part in (("plan", sync.plan), ("profile", sync.profile), ("costs", sync.costs)):
                if part is not None:
                    write_json(self.attempt_dir / f"{name}.json", part.to_json())

    def fail(self, error: BaseException) -> None:
        """Leave word of `error`: in the heartbeat, which needs no disk space, and with its traceback in a file."""
        text = f"{type(error).__name__}: {error}"
        self.heartbeat.beat(self.step, self.phase, text)
        report = {
            "rank": self.rank,
            "phase": self.phase,
            "step": self.step,
            "time": time.time(),
            "error": text,
            "traceback": "".join(traceback.format_exception(error)),
        }
        with suppress(OSError):  # a full disk: the heartbeat has the error
            print(report["traceback"], file=sys.stderr, flush=True)
            write_json(self.attempt_dir / f"failure-rank{self.rank}.json", json.dumps(report))


def watch_kernels(jobs: Sequence[Mapping[str, Any]], tell: Callable[[bool], None]) -> None:
    """Call `tell` when a kernel for the CPU is compiled from now on, and when it is ready."""
    cases = [_case_in(Path(job["run_dir"])) for job in jobs]
    # Schemes that choose compressors have a memory.
    compressing = [(one.compressor, one.memory, one.shard_compressor, one.weights) for one in cases]
    if cases[0].trains_on == "cpu" and any(spec is not None for specs in compressing for spec in specs):
        from ssfx.compressors.kernels.cpu.jit import (
            watch_compiling,  # late: numba takes a second, and dense cases need none
        )

        watch_compiling(tell)


def read_batch(path: str) -> dict[str, Any]:
    """Return the jobs of a launch and how they train."""
    return read(Path(path), _batch)


def _batch(text: str) -> dict[str, Any]:
    job_batch = loads(text)
    jobs = [{"run_dir": str(job["run_dir"]), "attempt": int(job["attempt"])} for job in job_batch["jobs"]]
    return {"train": str(job_batch["train"]), "jobs": jobs, "store": job_batch.get("store")}


def _case_in(run_dir: Path) -> Case:
    case = read(run_dir / "case.json", Case.from_json)
    if case.run_id != run_dir.name:
        raise RunError(f"{run_dir / 'case.json'} is the case of run {case.run_id}; remove it and start again")
    return case


def _join(case: Case, store_file: str | None) -> None:
    """Make the process group; ranks meet in `store_file`, or, where it is None, in the store that torchrun has."""
    started = int(os.environ["WORLD_SIZE"])
    if started != case.world_size:
        raise RunError(f"the case needs world size {case.world_size}, but {started} ranks were started")
    torch.set_num_threads(case.threads)
    meet: dict[str, Any] = {"timeout": timedelta(seconds=COLLECTIVE_TIMEOUT_S)}
    if store_file is not None:
        meet |= {
            "store": dist.FileStore(store_file, started),  # type: ignore[attr-defined]
            "rank": int(os.environ["RANK"]),
            "world_size": started,
        }
    local, on_machine = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if case.device == "cpu":
        machine.share_cores(local, on_machine)  # with GPUs it matters which cores are near
        dist.init_process_group("gloo", **meet)
        return
    have = accelerator.count(case.device)
    if on_machine > have:
        raise RunError(f"{on_machine} ranks on one machine need as many GPUs, and {socket.gethostname()} has {have}")
    dist.init_process_group(accelerator.transport(case.device), device_id=accelerator.use(case.device, local), **meet)


def _resolve(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _reset_peak_memory(device: str) -> None:
    gc.collect()
    if device != "cpu":
        accelerator.forget_peak(accelerator.in_use(device))
    elif Path("/proc/self/clear_refs").exists():
        # The peak of this case, not of the batch: what earlier cases freed goes back to the system first.
        machine.release_freed()
        Path("/proc/self/clear_refs").write_text("5")


def _peak_memory(device: str) -> int:
    if device != "cpu":
        return accelerator.peak_bytes(accelerator.in_use(device))
    status = Path("/proc/self/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def observe_phases(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, set_phase: Callable[[str], None]
) -> list[Any]:
    """Call `set_phase` with forward, backward, exchange and step as training reaches them; return the hooks' handles.

    Register after the gradient exchange. The exchange phase begins with the gradient of the first parameter, which
    backward reaches last: what follows is the rest of the compression and the wait for the exchange.
    """
    handles: list[Any] = [
        model.register_forward_pre_hook(lambda *_: set_phase("forward")),
        model.register_forward_hook(lambda *_: set_phase("backward")),
        optimizer.register_step_pre_hook(lambda *_: set_phase("step")),
    ]
    first = next((p for p in model.parameters() if p.requires_grad), None)
    if first is not None:
        handles.append(first.register_post_accumulate_grad_hook(lambda _: set_phase("exchange")))
    return handles


if __name__ == "__main__":
    main(sys.argv[1])
