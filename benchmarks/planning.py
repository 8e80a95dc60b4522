"""Print how long planning takes: every scheme, 100 to 10000 tensors, 4096 ranks, and how it grows.

Run with `python benchmarks/planning.py [scheme ...]`. Times are processor milliseconds of one call, so that a busy
machine does not change them much; growth is the exponent of the number of tensors between the last two sizes. Nothing
is asserted.
"""

from __future__ import annotations

import gc
import math
import random
import sys
import time

from rich.console import Console
from rich.table import Table

from ssfx.core.errors import ConfigError
from ssfx.core.origin import Origin
from ssfx.planning.costs import Costs, Curve, ring_exchange
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan

SIZES = (100, 1000, 10_000)
WORLD_SIZE = 4096
ORIGIN = Origin("nominal", note="planning benchmark")
KNOTS = tuple(64.0 * 4**i for i in range(11))


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


def seconds(scheme: str, profile: Profile, costs: Costs) -> float:
    """Return the processor seconds of one plan; ConfigError when there is none."""
    gc.collect()  # what an earlier plan left behind is not this one's
    start = time.process_time()
    make_plan(scheme, profile, costs)
    return time.process_time() - start


def row(scheme: str, profiles: list[Profile], costs: Costs) -> list[str]:
    """Return the cells of one scheme: times in milliseconds and the exponent, or why there is no plan."""
    try:
        times_s = [seconds(scheme, profile, costs) for profile in profiles]
    except ConfigError as error:
        return [f"refused: {error}"]
    exponent = math.log(times_s[-1] / times_s[-2]) / math.log(SIZES[-1] / SIZES[-2])
    return [*(f"{1e3 * time_s:.1f}" for time_s in times_s), f"{exponent:.2f}"]


def main() -> None:
    """Print the table."""
    table = Table(title=f"planning time in ms by number of tensors, {WORLD_SIZE} ranks")
    table.add_column("scheme", no_wrap=True)
    for heading in (*map(str, SIZES), "growth"):
        table.add_column(heading, justify="right")
    profiles, costs = [profile_of(num_tensors) for num_tensors in SIZES], costs_of(WORLD_SIZE)
    make_plan("ssfusion_naive", profile_of(10), costs)  # imports numpy outside the measurement
    for scheme in sys.argv[1:] or schemes.names():
        table.add_row(scheme, *row(scheme, profiles, costs))
    Console().print(table)


if __name__ == "__main__":
    main()
