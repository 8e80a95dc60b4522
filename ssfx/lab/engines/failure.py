"""Which rank failed first, and of what: peers of a dead rank fail too, and their errors must not hide the cause."""

import re
import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ssfx.core.errors import RunError
from ssfx.lab.engines.job import Job
from ssfx.lab.worker.heartbeat import Beat

_PEER_ERROR = re.compile(
    r"closed by peer|reset by peer|broken pipe|connection (was )?(refused|closed|aborted)|timed? ?out|"
    r"remote process exited|socket (error|closed)|unable to connect|failed to (recv|send)|"
    r"waits for it in exchange|where the ranks met is gone",
    re.IGNORECASE,
)
_UNKNOWN = Beat(0, 0, "setup")
_EXIT = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s*\n\s*exitcode\s*: (-?\d+)")

_WAITS = {"setup": "loading model and data", "checkpoint": "writing a checkpoint", "evaluate": "evaluating"}


@dataclass(frozen=True)
class Failure:
    """The first failing rank (None: torchrun itself, or all ranks alike), its phase and step, and the reason."""

    rank: int | None
    phase: str
    """Of the heartbeat: "setup", "forward", "exchange", ..."""
    step: int
    """From 0; the step that the rank was in."""
    reason: str
    """What happened, as the end of a sentence that begins with the rank."""

    def __str__(self) -> str:
        if self.rank is None:
            return self.reason
        return f"rank {self.rank} {self.reason} in {self.phase} at step {self.step}"


def is_peer_error(error: str) -> bool:
    """True for the errors of a rank whose only trouble is that another one is gone or silent."""
    return bool(_PEER_ERROR.search(error))


def waits_for(beats: Mapping[int, Beat], world_size: int) -> str:
    """Return what a launch of `world_size` ranks waits for, by the beats of those that began; "" while it trains."""
    phases = {beat.phase for beat in beats.values()}
    if len(beats) < world_size:
        return f"starting {world_size} ranks"
    if "compile" in phases:
        return "compiling kernels, which are kept for later runs"
    return next((text for phase, text in _WAITS.items() if phase in phases), "")


class RunsFailed(RunError):
    """Some runs of a sweep failed; the rows of the others are in the store. `failures`: the reason by run id."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        self.failures = dict(failures)
        first, *more = self.failures.values()
        others = ", ".join(list(self.failures)[1:])
        super().__init__(f"{first} ({len(more)} more failed: {others})" if more else first)


def diagnose(job: Job, exit_code: int, ended: Collection[int] = ()) -> Failure:
    """Return what ended `job`, from the ranks' failure reports, heartbeats and exit codes.

    In this order: a rank that a signal killed; the earliest exception that is not about a lost peer; a rank that is
    gone without a word; one that had to be ended while its peers waited for it; the earliest exception of any kind.
    `ended` are ranks that the launcher itself ended; the exit codes of ranks are those that torchrun printed.
    """
    if exit_code < 0:
        return Failure(None, "setup", 0, f"torchrun was killed by {_signal(exit_code)}")
    codes, errors = _exit_codes(job), _errors(job)
    own = {rank: error for rank, error in errors.items() if not is_peer_error(error[1])}
    silent = [rank for rank in range(job.case.trained_ranks) if rank not in errors]
    stopped = [rank for rank in silent if rank in ended or codes.get(rank) in (-signal.SIGTERM, 0)]
    gone = [rank for rank in silent if rank not in stopped]
    killed = [rank for rank in gone if codes.get(rank, 0) < 0]
    if killed:
        return _failure(job, killed[0], f"was killed by {_signal(codes[killed[0]])}")
    if own:
        rank = min(own, key=lambda rank: own[rank][0])
        return _failure(job, rank, f"raised {own[rank][1]}")
    if gone and (codes or errors):
        return _failure(job, gone[0], f"exited with code {codes[gone[0]]}" if gone[0] in codes else "vanished")
    if errors and stopped:
        beats = job.beats()
        rank = min(stopped, key=lambda rank: beats.get(rank, _UNKNOWN).step)
        return _failure(job, rank, f"did not answer its peers ({min(errors.values())[1]})")
    if errors:
        rank = min(errors, key=lambda rank: errors[rank][0])
        return _failure(job, rank, f"raised {errors[rank][1]}")
    if codes:
        rank = list(codes)[-1]  # torchrun lists what it saw first last
        return _failure(job, rank, f"was killed by {_signal(codes[rank])}")
    return Failure(None, "setup", 0, f"torchrun ended with code {exit_code}: {_last_line(job)}")


def _failure(job: Job, rank: int, reason: str) -> Failure:
    beat = job.beats().get(rank, _UNKNOWN)
    return Failure(rank, beat.phase, beat.step, reason)


def diagnose_stall(job: Job, silent_s: float) -> Failure:
    """Return who is to blame when no rank makes progress: the one furthest behind that does not wait in an exchange.

    None if several are equally far behind.
    """
    beats = job.beats()
    if not beats:
        return Failure(None, "setup", 0, f"no rank started within {silent_s:.0f} s: {_last_line(job)}")
    order = sorted(beats, key=lambda rank: (beats[rank].step, beats[rank].phase == "exchange"))
    first = beats[order[0]]
    alike = [rank for rank in order if (beats[rank].step, beats[rank].phase) == (first.step, first.phase)]
    if len(alike) > 1:  # inside an exchange of several phases the others may be done, or further on, while some wait
        who = "all ranks hang" if len(alike) == len(order) else f"ranks {', '.join(map(str, sorted(alike)))} hang"
        return Failure(
            None,
            first.phase,
            first.step,
            f"{who} in {first.phase} at step {first.step}, without progress for {silent_s:.0f} s",
        )
    return Failure(order[0], first.phase, first.step, f"hangs, without progress for {silent_s:.0f} s,")


def _errors(job: Job) -> dict[int, tuple[float, str]]:
    """Time and text of each rank's exception; a rank that could write no report has it in its heartbeat (full disk)."""
    errors = {rank: (report["time"], report["error"]) for rank, report in job.failures().items()}
    for rank, beat in job.beats().items():
        if beat.error and rank not in errors:
            errors[rank] = (0.0, beat.error)
    return errors


def _exit_codes(job: Job) -> dict[int, int]:
    if not job.log.exists():
        return {}
    return {int(rank): int(code) for rank, code in _EXIT.findall(job.log.read_text(errors="replace"))}


def _signal(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _last_line(job: Job) -> str:
    lines = job.log.read_text(errors="replace").split("\n") if job.log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
