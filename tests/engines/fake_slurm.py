"""Slurm of one machine, in a few lines: sbatch, squeue, scancel and srun as far as the slurm engine uses them.

    python fake_slurm.py PROGRAM ARGUMENTS...

`FAKE_SLURM` is a folder: `queue` holds a file for every task that waits or runs. Tasks run one after another, each on
as many "nodes" as it asks for, which are processes. What the real programs refuse, these refuse.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

STATE = Path(os.environ["FAKE_SLURM"])
QUEUE = STATE / "queue"


def sbatch(arguments: list[str]) -> int:
    assert arguments[0] == "--parsable"
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", Path(arguments[1]).read_text(), re.MULTILINE))
    if (STATE / "refuse").exists():
        print("sbatch: error: Batch job submission failed: Invalid partition name specified", file=sys.stderr)
        return 1
    QUEUE.mkdir(parents=True, exist_ok=True)
    job = 100 + len(list(STATE.glob("job-*")))
    (STATE / f"job-{job}").write_text("\n".join(f"{key}={value}" for key, value in options.items()))
    if "array" not in options:
        print(job)
        return 0
    tasks = int(options["array"].partition("-")[2].partition("%")[0]) + 1
    for task in range(tasks):
        (QUEUE / f"{job}_{task}").touch()
    (output,) = shlex.split(options["output"])  # as sbatch, which wants quotes around a space
    if not (STATE / "hold").exists():
        command = [sys.executable, __file__, "controller", str(job), str(tasks), arguments[1], output]
        none = subprocess.DEVNULL  # nobody waits for the controller's output
        subprocess.Popen([*command, options["nodes"]], start_new_session=True, stdin=none, stdout=none, stderr=none)
    print(job)
    return 0


def controller(arguments: list[str]) -> int:
    job, tasks, script, output, nodes = arguments
    for task in range(int(tasks)):
        place = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_JOB_ID": f"{job}{task}", "SLURM_JOB_NUM_NODES": nodes}
        with Path(str(task).join(part.replace("%%", "%") for part in output.split("%a"))).open("w") as log:
            subprocess.run(
                ["bash", script],
                env={**os.environ, **place},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )
        (QUEUE / f"{job}_{task}").unlink()
    return 0


def squeue(arguments: list[str]) -> int:
    assert arguments == ["--me", "--noheader", "--array", "--format=%F_%K %t %r"]
    if (STATE / "silent").exists():
        print("slurm_load_jobs error: Unable to contact slurm controller", file=sys.stderr)
        return 1
    how = "PD Nodes required for job are DOWN" if (STATE / "hold").exists() else "R None"
    print("".join(f"{path.name} {how}\n" for path in sorted(QUEUE.glob("*"))), end="")
    return 0


def scancel(arguments: list[str]) -> int:
    for path in QUEUE.glob("*"):
        if {path.name, path.name.partition("_")[0]} & set(arguments):
            path.unlink()
    return 0


def srun(arguments: list[str]) -> int:
    options = [word for word in arguments[: arguments.index("bash")] if word.startswith("--")]
    nodes = next(int(word.partition("=")[2]) for word in options if word.startswith("--nodes="))
    command = arguments[len(options) :]
    running = [
        subprocess.Popen(command, env={**os.environ, "SLURM_NODEID": str(node)}, start_new_session=True)
        for node in range(nodes)
    ]

    def end(*_: object) -> None:
        for process in running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    worst = 0
    while running:
        pid, status = os.wait()
        running = [process for process in running if process.pid != pid]
        code = os.waitstatus_to_exitcode(status)
        if code and not worst:
            worst = code
            end()
    return worst


if __name__ == "__main__":
    program, *rest = sys.argv[1:]
    sys.exit({function.__name__: function for function in (sbatch, controller, squeue, scancel, srun)}[program](rest))
