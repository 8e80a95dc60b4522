"""Random faults in a loop: does every run still end with the right row, and does nothing pile up?

    python benchmarks/soak.py [--minutes 30] [--seed 0]

Each round trains one small case on two ranks, with a checkpoint every third step, and disturbs it by one fault that a
seeded generator chooses: a rank is killed, raises, hangs, is slow or has a NaN; the launcher gets SIGUSR1, SIGTERM or
SIGINT, or is killed. The same case is then run until it is finished, undisturbed. Its loss must be that of a run that
nothing disturbed, unless a NaN cost it a step. After each round the launcher's memory and open files, the processes
that are left and the files in the temporary folder are counted. At the end: what they were after the second round and
after the last, and the share of steps that were done in vain. Exit code 1 when a row is wrong or anything but memory
has grown, or memory by more than GROWTH_MIB.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil

from ssfx.core.case import Case
from ssfx.core.errors import RunError
from ssfx.lab.engines.launch import Patience
from ssfx.lab.engines.torchrun import Torchrun
from ssfx.lab.results.store import Store

GROWTH_MIB = 32.0
STEPS, EVERY = 12, 3
TRIES = 5
RANK_FAULTS = ("kill", "raise", "hang", "slow", "nan")
LAUNCHER_FAULTS = ("SIGUSR1", "SIGTERM", "SIGINT", "SIGKILL")
PHASES = ("forward", "backward", "exchange", "step")
SCHEMES: tuple[dict[str, object], ...] = (
    {"scheme": "ddp"},
    {"scheme": "per_tensor", "compressor": "topk", "density": 0.05, "memory": "residual"},
    {"scheme": "fused_all", "compressor": "dgc", "density": 0.05, "memory": "residual"},
)
TOKEN = "SSFX_SOAK"


@dataclass(frozen=True)
class Counts:
    """What is there after a round."""

    memory_mib: float
    """Of the launcher, resident."""
    descriptors: int
    """Files that the launcher has open."""
    processes: int
    """Processes that were started and are left, the launcher not counted."""
    temporary_files: int
    """Files and folders in the temporary folder."""


def case_of(kind: int, repeat: int) -> Case:
    """Return a case; its repeats are other runs of the same training."""
    return Case(
        experiment="soak",
        model="resnet_tiny",
        dataset="digits",
        cluster="local",
        world_size=2,
        batch_size=8,
        steps=STEPS,
        warmup_steps=2,
        checkpoint_every=EVERY,
        seed=7,
        repeat=repeat,
        **SCHEMES[kind],
    )  # type: ignore[arg-type]


def disturbed(choice: random.Random) -> tuple[str, str]:
    """Return a fault and what SSFX_FAULT says of it, "" for one of the launcher."""
    kind = choice.choice(RANK_FAULTS + LAUNCHER_FAULTS)
    if kind in LAUNCHER_FAULTS:
        return kind, ""
    phase = "forward" if kind == "nan" else choice.choice(PHASES)
    return kind, f"{kind}:rank={choice.randrange(2)},step={choice.randrange(1, STEPS)},phase={phase}"


def attempt(case: Case, store: Store, fault: str, declared: str, after_steps: int) -> bool:
    """Run `case` once, disturbed; return whether it is finished."""
    os.environ.pop("SSFX_FAULT", None)
    if declared:
        os.environ["SSFX_FAULT"] = declared
    if fault == "SIGKILL":
        _killed(case, store, after_steps)
        return store.row(case) is not None
    over = threading.Event()
    if fault in LAUNCHER_FAULTS:
        threading.Thread(target=_signal_later, args=(case, store, fault, after_steps, over), daemon=True).start()
    try:
        run(case, store)
    except (RunError, SystemExit, KeyboardInterrupt):
        pass
    finally:
        over.set()
    return store.row(case) is not None


def run(case: Case, store: Store) -> None:
    """Run `case` in this process, as the command line would."""
    Torchrun(patience=Patience(stall_s=15.0)).run([case], store, progress=False)


def _signal_later(case: Case, store: Store, name: str, after_steps: int, over: threading.Event) -> None:
    while not over.wait(0.02):
        if steps_done(case, store) >= after_steps:
            os.kill(os.getpid(), getattr(signal, name))
            return


def _killed(case: Case, store: Store, after_steps: int) -> None:
    command = [sys.executable, __file__, "--once", str(store.runs.parent), case.to_json()]
    launcher = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while launcher.poll() is None and steps_done(case, store) < after_steps:
        time.sleep(0.02)
    launcher.kill()
    launcher.wait()


def steps_done(case: Case, store: Store) -> int:
    """Return how many steps rank 0 has logged over all attempts."""
    logs = store.run_dir(case).glob("attempt-*/rank0.jsonl")
    return sum(path.read_bytes().count(b"\n") for path in logs)


def counts(folder: Path) -> Counts:
    """Return what is there now; processes that are ending get a few seconds for it."""
    me = psutil.Process()
    end = time.monotonic() + 20
    while (left := _left(me.pid)) and time.monotonic() < end:
        time.sleep(0.2)
    return Counts(me.memory_info().rss / 2**20, me.num_fds(), left, sum(1 for _ in folder.rglob("*")))


def _left(own: int) -> int:
    found = 0
    for process in psutil.process_iter():
        try:
            alive = process.status() != psutil.STATUS_ZOMBIE
            found += alive and process.pid != own and process.environ().get(TOKEN) == os.environ[TOKEN]
        except (psutil.Error, OSError):
            continue
    return found


def soak(minutes: float, seed: int) -> int:
    """Run rounds for so long, print each and what is left; return the exit code."""
    choice, end = random.Random(seed), time.monotonic() + 60 * minutes
    os.environ[TOKEN] = f"{os.getpid()}-{time.monotonic_ns()}"
    wrong: list[str] = []
    seen: list[Counts] = []
    faults: Counter[str] = Counter()
    done = 0
    with tempfile.TemporaryDirectory(prefix="ssfx-soak-") as root:
        temporary = Path(root, "tmp")
        temporary.mkdir()
        os.environ["TMPDIR"], tempfile.tempdir = str(temporary), None
        store = Store(Path(root, "results"))
        right: dict[int, float | None] = {}
        while time.monotonic() < end or len(seen) < 3:
            kind = choice.randrange(len(SCHEMES))
            if kind not in right:
                run(case_of(kind, 0), store)
                right[kind] = _loss(case_of(kind, 0), store)
            case = case_of(kind, len(seen) + 1)
            fault, declared = disturbed(choice)
            finished = attempt(case, store, fault, declared, choice.randrange(1, STEPS))
            tries = 1
            while not finished and tries < TRIES:
                finished, tries = attempt(case, store, "", "", 0), tries + 1
            faults[fault] += 1
            done += steps_done(case, store)
            loss = _loss(case, store) if finished else None
            if not finished or (fault != "nan" and loss != right[kind]):
                wrong.append(f"{fault} ({declared}): loss {loss} instead of {right[kind]} after {tries} attempts")
            seen.append(counts(temporary))
            print(f"round {len(seen)}: {fault:8} {case.scheme:10} {tries} attempt(s), {seen[-1]}", flush=True)
    tempfile.tempdir = None
    first, last = seen[1], seen[-1]
    useful = STEPS * len(seen)
    report = {
        "rounds": len(seen),
        "seed": seed,
        "faults": dict(sorted(faults.items())),
        "wrong": wrong,
        "after_round_2": vars(first),
        "after_the_last": vars(last),
        "steps": {"useful": useful, "done": done, "wasted_share": round(1 - useful / done, 3)},
    }
    print(json.dumps(report, indent=1))
    grown = [
        name for name in ("descriptors", "processes", "temporary_files") if getattr(last, name) > getattr(first, name)
    ]
    if last.memory_mib - first.memory_mib > GROWTH_MIB:
        grown.append("memory_mib")
    print(f"{len(wrong)} of {len(seen)} rounds gave a wrong row; grown: {', '.join(grown) or 'nothing'}")
    return int(bool(wrong or grown))


def _loss(case: Case, store: Store) -> float | None:
    row = store.row(case)
    return row.metrics["loss"] if row else None


def main() -> int:
    """Soak, or, for a launcher that is to be killed, run one case."""
    if sys.argv[1:2] == ["--once"]:
        run(Case.from_json(sys.argv[3]), Store(Path(sys.argv[2])))
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    return soak(asked.minutes, asked.seed)


if __name__ == "__main__":
    sys.exit(main())
