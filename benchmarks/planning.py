"""Print how long planning takes: every scheme, 100 to 10000 tensors, 64 and 4096 ranks.

Run with `python benchmarks/planning.py`. Times are of one call, in milliseconds; nothing is asserted.
"""

from __future__ import annotations

import random
import time

from rich.console import Console
from rich.table import Table

from ssfx.costs import Costs, Curve, ring_exchange
from ssfx.errors import ConfigError
from ssfx.origin import Origin
from ssfx.plan import TensorSpec
from ssfx.planning import make_plan
from ssfx.profile import Profile
from ssfx.schemes import schemes

SIZES = (100, 1000, 10_000)
WORLD_SIZES = (64, 4096)
ORIGIN = Origin("nominal", note="planning benchmark")
KNOTS = tuple(64.0 * 4**i for i in range(11))


def profile_of(num_tensors: int) -> Profile:
    """Return a model of that many tensors: two thirds small, one third large, 0.1 ms of backward each."""
    rng = random.Random(num_tensors)
    numel = [
        int(10 ** rng.uniform(5, 6.3)) if rng.random() < 1 / 3 else rng.randint(64, 4096) for _ in range(num_tensors)
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


def seconds(scheme: str, profile: Profile, costs: Costs) -> str:
    """Return the time of one plan in milliseconds, or why there is none."""
    start = time.perf_counter()
    try:
        make_plan(scheme, profile, costs)
    except ConfigError as error:
        return f"refused: {error}"
    return f"{1e3 * (time.perf_counter() - start):.1f}"


def main() -> None:
    """Print the table."""
    table = Table(title="planning time in ms, by number of tensors / world size")
    table.add_column("scheme", no_wrap=True)
    for num_tensors in SIZES:
        for world_size in WORLD_SIZES:
            table.add_column(f"{num_tensors}/{world_size}", justify="right")
    make_plan("ssfusion_naive", profile_of(10), costs_of(8))  # imports numpy outside the measurement
    for scheme in schemes.names():
        cells = (seconds(scheme, profile_of(n), costs_of(p)) for n in SIZES for p in WORLD_SIZES)
        table.add_row(scheme, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
