"""One launch of all ranks: started, watched until its jobs are done or one fails, and ended with all it started.

Signals end a launcher: Ctrl-C, SIGTERM and SIGHUP now, SIGUSR1, a warning, at a checkpoint after the step.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssfx.core.errors import RequeueError, RunError
from ssfx.core.files import created, own_folder, write_json
from ssfx.core.lazy import psutil
from ssfx.core.machine import steady_memory
from ssfx.core.rows import Row
from ssfx.lab.engines.collect import collect
from ssfx.lab.engines.failure import Failure, diagnose, diagnose_stall, waits_for
from ssfx.lab.engines.job import Job
from ssfx.lab.engines.places import Place
from ssfx.lab.engines.progress import Report
from ssfx.lab.results.step_logs import seal
from ssfx.lab.worker.heartbeat import QUIET
from ssfx.lab.worker.stop import REQUEST

NOW = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WARNING = signal.SIGUSR1


class Warned:
    """Whether WARNING has come."""

    def __init__(self) -> None:
        self.yes = False

    def check(self, before: str) -> None:
        """Raise RequeueError, saying before what, if the warning has come."""
        if self.yes:
            raise RequeueError(f"stopped by {WARNING.name} before {before}; the same command continues")

    def come(self, *_: object) -> None:
        """Note that the warning has come."""
        self.yes = True


@contextmanager
def signals() -> Iterator[Warned]:
    """The first of NOW ends what is inside; others that follow do not keep ranks from being ended, and files put away.

    Ctrl-C is KeyboardInterrupt, as ever; SIGTERM and SIGHUP are SystemExit(128 + number), and a line says so at the
    end. SIGUSR1 is noted. Signals reach the main thread only: in another one nothing changes. What is ignored, as
    SIGHUP is under nohup, stays ignored.
    """
    warned = Warned()
    if threading.current_thread() is not threading.main_thread():
        yield warned
        return
    ended_by: list[int] = []

    def leave(number: int, _: object) -> None:
        if not ended_by:  # a second one must not keep ranks from being ended
            ended_by.append(number)
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in (*NOW, WARNING)}
    for number in NOW:
        if before[number] != signal.SIG_IGN:
            signal.signal(number, leave)
    signal.signal(WARNING, warned.come)
    try:
        yield warned
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if ended_by and ended_by[0] != signal.SIGINT:
            with suppress(OSError):  # after SIGHUP there may be no terminal
                name = signal.Signals(ended_by[0]).name
                print(f"ssfx: ended by {name}; finished runs are kept and the same command continues", file=sys.stderr)


POLL_S = 0.2
_NEVER_S = 10**6
GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL, and for torchrun to notice a failure by itself."""


@dataclass(frozen=True)
class Patience:
    """Seconds without any progress after which a run counts as hanging.

    `stall_s` inside the training loop; `quiet_s` while a rank starts, evaluates or writes a checkpoint.
    """

    stall_s: float = 90.0
    quiet_s: float = 900.0


class Launch:
    """Processes that work through `jobs`, all of one cluster, world size, device and thread count: one torchrun.

    Use it as a context: on leaving it, errors included, no process of the launch is left.
    """

    def __init__(
        self, jobs: Sequence[Job], train: str, patience: Patience, report: Report, warned: Warned, place: Place
    ) -> None:
        self._jobs = jobs
        self._train = train
        self._patience = patience
        self._report = report
        self._warned = warned
        self._place = place
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: dict[int, psutil.Process] = {}
        # In the environment, which other users cannot read; a command line they can.
        self._variables = {"PET_RDZV_ID": secrets.token_hex(16), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

    def __enter__(self) -> Launch:
        first = self._jobs[0]
        for job in self._jobs:
            put_in_order(job.run_dir)
            write_json(job.run_dir / "case.json", job.case.to_json())
        try:
            first.attempt_dir.mkdir()
            self._files.mkdir(mode=0o700)
            batch = first.attempt_dir / "batch.json"
            jobs = [{"run_dir": str(job.run_dir), "attempt": job.attempt} for job in self._jobs]
            store = str(self._files / "ranks") if self._nodes() == 1 else None
            write_json(batch, json.dumps({"train": self._train, "jobs": jobs, "store": store}))
            with created(first.log, "wb") as log, self._place.entered():
                for command, variables in self._commands(batch):
                    # Ranks watch this pipe: it closes when the launcher dies, even of SIGKILL, and they end.
                    process = subprocess.Popen(
                        command,
                        stdin=subprocess.PIPE,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                        env={**os.environ, **variables, **self._variables, **self._place.environment},
                        pass_fds=[job.claim.file for job in self._jobs],
                    )
                    self._processes.append(process)
        except BaseException:
            self._end()
            raise
        return self

    @property
    def note(self) -> str:
        """What there is to say about the launch once it has started; "" for nothing."""
        return ""

    def row(self, job: Job, code: Mapping[str, Any]) -> Row:
        """Return the row of a finished job; see collect."""
        return collect(job, "measured", code, settings(job.case.threads))

    def _commands(self, batch: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
        """Yield the commands that together start all ranks, with what they add to the environment."""
        command = [sys.executable, *self._torchrun(), *worker(batch)]
        yield command, settings(self._jobs[0].case.threads)

    def _nodes(self) -> int:
        """Return how many machines, or emulated ones, the ranks are on."""
        return 1

    @property
    def _files(self) -> Path:
        return self._jobs[0].attempt_dir / TEMPORARY

    def _torchrun(self, address: str = "", port: int = 0) -> list[str]:
        """Return what starts the ranks of one node, after "python" and before `worker`.

        On one node torchrun and its ranks meet in files, so that nothing listens but gloo and NCCL on the loopback.
        Several nodes meet at `address` and `port`, by a rendezvous that, unlike c10d's, unpickles nothing of what
        others can write there; each needs "--node-rank=NUMBER" besides.
        """
        nodes, case = self._nodes(), self._jobs[0].case
        if nodes == 1:  # the only node has no other to stay alive for, and each time adds to the file
            meet = [
                "--rdzv-backend=c10d",
                f"--rdzv-conf=store_type=file,keep_alive_interval={_NEVER_S}",
                f"--rdzv-endpoint={self._files / 'agent'}",
            ]
        else:
            meet = ["--rdzv-backend=static", f"--master-addr={address}", f"--master-port={port}"]
        return [
            "-m",
            "torch.distributed.run",
            f"--nnodes={nodes}",
            f"--nproc-per-node={case.world_size // nodes}",
            *meet,
            "--max-restarts=0",
            f"--log-dir={self._files}",
        ]

    def finished(self) -> Iterator[Job | None]:
        """Yield each job as soon as all its ranks have left their results; RunError when one fails or hangs.

        None says that there is nothing new: ask for the next after POLL_S.
        """
        for job in self._jobs:
            yield from self._watch(job)
            self._keep_log(job)
            seal(job.attempt_dir)
            yield job
        end = time.monotonic() + GRACE_S  # all results are there; a rank that will not leave is ended
        while None in [process.poll() for process in self._processes] and time.monotonic() < end:
            yield None

    def _watch(self, job: Job) -> Iterator[None]:
        seen: object = None
        since = time.monotonic()
        ending: float | None = None
        while not job.done():
            if self._warned.yes:
                self._ask_to_stop(job)
            if (step := job.stopped_at()) is not None:
                self._keep_log(job)
                raise RequeueError(
                    f"run {job.case.run_id} ({job.case.label}) stopped at the checkpoint after {step} of "
                    f"{job.case.steps} steps; the same command continues"
                )
            codes = [process.poll() for process in self._processes]
            for record in job.new_records():
                self._report.step(job.case, record)
            if None not in codes and not job.done():
                self._keep_log(job)
                self._fail(job, self._diagnose(job, codes))
            beats = job.beats()
            self._report.waits(job.case, waits_for(beats, job.case.trained_ranks))
            self._remember([beat.pid for beat in beats.values()])
            if any(code is not None and code < 0 for code in codes):
                ending = time.monotonic() - 1.0  # a torchrun that was killed will not notice anything
            elif any(codes) or any(beat.error for beat in beats.values()):
                ending = ending or time.monotonic() + GRACE_S
            if ending is not None and time.monotonic() > ending:
                ended = [rank for rank, beat in beats.items() if self._runs(beat.pid)]
                self.stop()
                self._keep_log(job)
                self._fail(job, self._diagnose(job, codes, ended))
            now = job.progress()
            if now != seen:
                seen, since = now, time.monotonic()
            quiet = len(beats) < job.case.trained_ranks or any(beat.phase in QUIET for beat in beats.values())
            limit = self._patience.quiet_s if quiet else self._patience.stall_s
            if time.monotonic() - since > limit:
                failure = diagnose_stall(job, limit)
                self._dump_stacks()
                self.stop()
                self._keep_log(job)
                self._fail(job, failure)
            yield
        for record in job.new_records():
            self._report.step(job.case, record)

    def _ask_to_stop(self, job: Job) -> None:
        request = job.attempt_dir / REQUEST
        if not request.exists():
            own_folder(job.attempt_dir)
            created(request).close()

    def _diagnose(self, job: Job, codes: Sequence[int | None], ended: Collection[int] = ()) -> Failure:
        """Return what ended `job`: `codes` of the processes, None for one that ran; `ended` are ranks just ended."""
        return diagnose(job, 1 if codes[0] is None else codes[0], ended)

    def _fail(self, job: Job, failure: Failure) -> None:
        with suppress(OSError):  # the disk may be full; the message below is what counts
            report = {"rank": failure.rank, "phase": failure.phase, "step": failure.step, "reason": str(failure)}
            write_json(job.attempt_dir / "failure.json", json.dumps(report))
        log = job.log if job.log.exists() else self._jobs[0].log
        raise RunError(f"run {job.case.run_id} ({job.case.label}) failed: {failure}; see {log}")

    def _keep_log(self, job: Job) -> None:
        if job is not self._jobs[0]:
            with suppress(OSError):
                own_folder(job.attempt_dir)
                with self._jobs[0].log.open("rb") as whole, created(job.log, "wb") as kept:
                    shutil.copyfileobj(whole, kept)

    def _remember(self, pids: Sequence[int]) -> None:
        for pid in pids:
            if pid not in self._workers:
                with suppress(psutil.NoSuchProcess):
                    self._workers[pid] = psutil.Process(pid)

    def _runs(self, pid: int) -> bool:
        worker = self._workers.get(pid)
        with suppress(psutil.NoSuchProcess):
            return worker is not None and worker.status() != psutil.STATUS_ZOMBIE
        return False

    def _dump_stacks(self) -> None:
        for worker in self._workers.values():
            with suppress(psutil.NoSuchProcess):
                worker.send_signal(signal.SIGUSR2)
        time.sleep(1.0)

    def stop(self) -> None:
        """Return when no process of the launch is left: SIGTERM first, SIGKILL after the grace period."""
        processes = dict(self._workers)
        for started in self._processes:
            if started.returncode is not None:
                continue  # it has been waited for, so that its number may be a stranger's by now
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(started.pid)
                processes |= {p.pid: p for p in (process, *process.children(recursive=True))}
        for process in processes.values():
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        _, alive = psutil.wait_procs(list(processes.values()), timeout=GRACE_S)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=GRACE_S)
        for started in self._processes:
            assert started.stdin is not None
            started.stdin.close()
            started.wait()

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self.stop()
        shutil.rmtree(self._files, ignore_errors=True)
        for job in self._jobs:
            if job.claim.file >= 0:  # a finished run is in order, and others may look at it already
                with suppress(OSError):  # the disk may be full; what counts was said
                    put_in_order(job.run_dir)


def worker(batch: Path) -> list[str]:
    """Return what torchrun is to start as every rank."""
    return ["-m", "ssfx.lab.worker.rank", str(batch)]


def settings(threads: int, interface: str | None = "lo") -> dict[str, str]:
    """Return the variables that the launcher sets for all ranks; they are part of a row's manifest.

    `interface` is the network interface that gloo and NCCL take, None for what they take by themselves.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        **({"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface} if interface else {}),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
        **steady_memory(),
    }


TEMPORARY = "torchrun-files"
"""Folder of an attempt, for its user alone: what torchrun and ranks meet in, and files of torchrun."""


def put_in_order(run_dir: Path) -> None:
    """No temporary file is left of the run's attempts, and each has the digests of its step logs."""
    if not run_dir.is_dir():
        return
    attempts = [folder for folder in run_dir.glob("attempt-*") if not folder.is_symlink()]
    for attempt_dir in attempts:
        shutil.rmtree(attempt_dir / TEMPORARY, ignore_errors=True)
    for path in run_dir.rglob("*.tmp"):
        path.unlink(missing_ok=True)
    for attempt_dir in attempts:
        seal(attempt_dir)
