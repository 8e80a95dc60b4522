"""A real Slurm on this machine: munged, slurmctld and a slurmd for each node, started by hand in a folder of their own.

Nothing of the system is touched: keys, sockets, state and logs are in the folder, and every daemon is a process of this
one that ends with `stop`.
"""

import os
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
PROGRAMS = ("sbatch", "squeue", "srun", "scancel", "scontrol", "sinfo")
NODES = 2

_CONF = """\
ClusterName=ssfx
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket,cred_expire=8
SlurmctldPort={controller}
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0
KillWait=5
MessageTimeout=3
ReturnToService=2
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} CPUs=2 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES DefMemPerNode=10 MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Return why no Slurm can be started here, "" when it can."""
    if os.geteuid():
        return "it needs root"
    absent = [name for name in (*DAEMONS, *PROGRAMS) if _where(name) is None]
    return f"{absent[0]} is not installed (packages slurm-wlm and munge)" if absent else ""


def _where(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


class RealSlurm:
    """The daemons below `root`, whose path must be short: sockets have names of at most 107 bytes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.variables = {"SLURM_CONF": str(root / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Return when all nodes are idle."""
        for name in ("state", *(f"spool-n{node + 1}" for node in range(NODES))):
            (self.root / name).mkdir()
        key = self.root / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        self._daemon(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={self.root}/munge.socket",
            f"--pid-file={self.root}/munged.pid",
            f"--log-file={self.root}/munged.log",
            f"--seed-file={self.root}/munged.seed",
        )
        self._until(lambda: (self.root / "munge.socket").exists())
        first = _free_ports(NODES + 1)
        host, ports = socket.gethostname().partition(".")[0], f"{first + 1}-{first + NODES}"
        text = _CONF.format(root=self.root, host=host, nodes=NODES, controller=first, ports=ports)
        (self.root / "slurm.conf").write_text(text)
        self.start_controller()
        for node in range(NODES):
            self._daemon("slurmd", "-D", "-N", f"n{node + 1}")
        self._until(lambda: self.said("sinfo", "--noheader", "--format=%T %D") == f"idle {NODES}")

    def start_controller(self) -> None:
        """Start slurmctld, which goes on with the state that an earlier one left."""
        self._controller = self._daemon("slurmctld", "-D")

    def stop_controller(self) -> None:
        """End slurmctld: jobs that run go on, and nobody answers."""
        self._controller.terminate()
        self._controller.wait(30)

    def said(self, *command: str) -> str:
        """Return what a program of Slurm prints; "" when it fails."""
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **self.variables}, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    def stop(self) -> None:
        """Return when all jobs and daemons have ended."""
        if self._daemons[1:] and self._controller.poll() is None:
            self.said("scancel", "--user=root")
            end = time.monotonic() + 30
            while self.said("squeue", "--noheader") and time.monotonic() < end:
                time.sleep(0.2)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _daemon(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        program = _where(name)
        assert program is not None
        with (self.root / f"{name}.out").open("ab") as out:
            # A session of its own: what stops it is `stop`, not Ctrl-C.
            daemon = subprocess.Popen(
                [program, *arguments],
                env={**os.environ, **self.variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._daemons.append(daemon)
        return daemon

    def _until(self, true) -> None:
        end = time.monotonic() + 60
        while not true():
            logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in self.root.glob("*.out"))
            assert time.monotonic() < end, f"Slurm did not start:\n{logs}"
            time.sleep(0.1)


def _free_ports(count: int) -> int:
    """Return the first of `count` neighbouring ports that nobody listens on now."""
    for first in range(21_000 + os.getpid() % 5000, 60_000, count):
        if all(_is_free(first + number) for number in range(count)):
            return first
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0
