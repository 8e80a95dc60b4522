"""Print what planning and simulating cost, beside the budgets, in processor seconds of one core.

    python benchmarks/planning.py [WORD ...]

With words only what has one of them in its name is printed: "simulate", "growth", "memory". The first line is the time
of a fixed loop of plain Python: machines compare by it. Every command has its start in it, with its byte code compiled
before, and results in a fresh folder. Then come plans alone, in a process that has planned before, how they grow with
the number of tensors, and the most memory that one of the largest takes. Nothing is asserted.
"""

import gc
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from ssfx.core.case import ClusterChoice
from ssfx.core.errors import ConfigError
from ssfx.core.origin import Origin
from ssfx.perf_model.target import target_at
from ssfx.planning.costs import Costs, Curve, ring_exchange
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan

LOOP = 20_000_000
POINT_S, PLAN_S, AUTO_S = 0.6, 0.6, 0.6
"""Budgets: a simulated point with its start, a plan, a plan of auto."""
POINTS = (
    ("ddp", "espresso", "hipress", "mergecomp", "omgs", "cupcake", "oktopk", "ssfusion_oi", "auto"),
    ("resnet50", "gpt2_large", "gpt2_xl"),
)
COMMANDS = (
    ("simulate model=gpt2_large cluster=box cluster.nodes=12500 scheme=auto", POINT_S),
    ("simulate model=gpt2_large cluster=box cluster.nodes=12500 scheme=ssfusion_oi", POINT_S),
    ("run experiment=throughput cluster=64gpu", 6.0),
    ("advise model=bert_large cluster=64gpu", 3.0),
    ("advise model=gpt2_xl cluster=box cluster.nodes=8 cluster.device=h100 cluster.inter.gbps=25", 3.0),
    ("validate", 6.0),
    ("figures", 60.0),
)
SIZES = (100, 1000, 10_000)
WORLD_SIZE = 100_000
MOST_MB = 300.0
"""Budget of memory: a process that makes one plan of the largest size."""
ORIGIN = Origin("nominal", note="planning benchmark")
KNOTS = tuple(64.0 * 4**i for i in range(11))


def loop_s() -> float:
    """Return the processor seconds of the fixed loop."""
    began, total = time.process_time(), 0
    for number in range(LOOP):
        total += number & 3
    return time.process_time() - began


def commands() -> Iterator[tuple[str, float]]:
    """Yield commands with their budgets in seconds."""
    for model in POINTS[1]:
        for scheme in POINTS[0]:
            yield f"simulate model={model} cluster=64gpu scheme={scheme}", POINT_S
    yield from COMMANDS


def command_s(words: str, compiled: str) -> float:
    """Return the processor seconds of one command; byte code is kept in the folder `compiled`."""
    with tempfile.TemporaryDirectory() as results:
        environment = {**os.environ, "SSFX_RESULTS": results, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        before_s = children_s()
        subprocess.run(
            [sys.executable, "-m", "ssfx.cli", *words.split()], capture_output=True, check=True, env=environment
        )
        return children_s() - before_s


def children_s() -> float:
    """Return the user and system seconds of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def plan_s(scheme: str, profile: Profile, costs: Costs) -> float:
    """Return the processor seconds of one plan; ConfigError when there is none."""
    gc.collect()  # what an earlier plan left behind is not this one's
    began = time.process_time()
    make_plan(scheme, profile, costs)
    return time.process_time() - began


def planned_s(scheme: str, model: str, nodes: int) -> float:
    """Return the median processor seconds of a plan on other rates than before, after one."""
    found = []
    for factor in (1.0, 0.9, 0.8, 0.7):
        choice = ClusterChoice("64gpu", {"nodes": nodes, "inter.gbps": 100 * factor})
        target = target_at(choice, None, "auto", model, 8, "sgd")
        options = schemes[scheme].options({})
        compressor, density = (getattr(options, name, None) for name in ("compressor", "density"))
        found.append(plan_s(scheme, target.profile, target.system.planning_costs(compressor, density)))
    return median(found[1:])


def profile_of(num_tensors: int) -> Profile:
    """Return a model of that many tensors: two thirds small, one third large, 0.1 ms of backward each."""
    rng = random.Random(num_tensors)
    numel = [
        int(10 ** rng.uniform(5, 6)) if rng.random() < 1 / 3 else rng.randint(64, 4096) for _ in range(num_tensors)
    ]
    tensors = tuple(TensorSpec(f"t{i}", (n,)) for i, n in enumerate(numel))
    return Profile("synthetic", tensors, (1e-4,) * num_tensors, 0.0, ORIGIN)


def costs_of(world_size: int) -> Costs:
    """Return costs that look measured (piecewise linear) on 100 Gbit/s links."""
    rng = random.Random(world_size)

    def table(base_s: float, per_element_s: float) -> Curve:
        return Curve(KNOTS, tuple(sorted(base_s * (1 + 0.2 * rng.random()) + per_element_s * n for n in KNOTS)))

    exchange = ring_exchange(world_size, 5e-6, 8e-11)
    return Costs(world_size, table(3e-4, 4e-10), table(6e-4, 1e-9), table(5e-5, 1e-10), exchange, ORIGIN)


def show(seconds: float, budget_s: float, loop: float, what: str) -> None:
    """Print one line: processor seconds, the same in loops, the budget, and whether it is kept."""
    kept = "kept  " if seconds <= budget_s else "MISSED"
    print(f"{seconds:9.3f} s {seconds / loop:8.3f} loops  of {budget_s:6.2f} s  {kept}  {what}", flush=True)


def growth() -> None:
    """Print milliseconds by number of tensors, and the exponent between the last two sizes."""
    print(f"\nms of a plan of {', '.join(map(str, SIZES))} tensors on {WORLD_SIZE} ranks, and the exponent", flush=True)
    profiles, costs = [profile_of(num_tensors) for num_tensors in SIZES], costs_of(WORLD_SIZE)
    make_plan("ssfusion_naive", profile_of(10), costs)  # imports numpy outside the measurement
    for scheme in schemes.names():
        try:
            times_s = [plan_s(scheme, profile, costs) for profile in profiles]
        except ConfigError as error:
            print(f"{scheme:16} refused: {error}", flush=True)
            continue
        exponent = math.log(times_s[-1] / times_s[-2]) / math.log(SIZES[-1] / SIZES[-2])
        cells = " ".join(f"{1e3 * seconds:9.1f}" for seconds in times_s)
        print(f"{scheme:16} {cells} {exponent:6.2f}", flush=True)


def memory_mb(scheme: str) -> float:
    """Return the most memory of a new process that makes one plan of the largest size."""
    words = (
        "import resource, sys; import planning; from ssfx.schemes.make_plan import make_plan;"
        f"make_plan({scheme!r}, planning.profile_of(planning.SIZES[-1]), planning.costs_of(planning.WORLD_SIZE));"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", words], cwd=Path(__file__).parent, capture_output=True, check=True, text=True
    )
    return float(done.stdout)


def memory() -> None:
    """Print the most memory of one plan of the largest size, of every scheme that searches."""
    print(f"\nMB of a process with one plan of {SIZES[-1]:,} tensors on {WORLD_SIZE:,} ranks", flush=True)
    for scheme in POINTS[0]:
        used = memory_mb(scheme)
        print(f"{used:9.0f} MB of {MOST_MB:.0f}  {'kept  ' if used <= MOST_MB else 'MISSED'}  {scheme}", flush=True)


def main(compiled: str) -> None:
    """Print the loop, the budgets and the growth."""
    asked = sys.argv[1:]
    loop = loop_s()
    print(f"{loop:9.3f} s  a loop of {LOOP:,} steps of plain Python", flush=True)

    def wanted(what: str) -> bool:
        return not asked or any(word in what for word in asked)

    first = set()
    for words, budget_s in commands():
        if wanted(words):
            if words.split()[0] not in first and words != "figures":
                first.add(words.split()[0])
                command_s(words, compiled)
            show(command_s(words, compiled), budget_s, loop, f"ssfx {words}")
    for model in POINTS[1]:
        for scheme in POINTS[0]:
            for nodes in (16, 25_000):
                what = f"a plan of {scheme} for {model} on {4 * nodes:,} ranks"
                if wanted(what):
                    show(planned_s(scheme, model, nodes), AUTO_S if scheme == "auto" else PLAN_S, loop, what)
    if wanted("growth"):
        growth()
    if wanted("memory"):
        memory()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
