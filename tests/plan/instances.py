"""Models and cost tables for the plan tests: the worked instance A, and random ones."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st

from ssfx.core.origin import Origin
from ssfx.planning.costs import Costs, Curve, ring_exchange
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, TensorSpec, launch_in_order
from ssfx.planning.profile import Profile

ORIGIN = Origin("nominal", note="test instance")

A_NUMEL = (1000, 2048000, 2048, 1048576, 512, 2359296, 512, 524288, 1024, 262144, 64, 9408)
A_GAP_MS = (0.05, 1.0, 0.10, 1.5, 0.10, 2.5, 0.10, 1.5, 0.10, 1.2, 0.10, 0.8)


def make_profile(numel: Sequence[int], gap_s: Sequence[float], dtypes: Sequence[str] | None = None) -> Profile:
    dtypes = dtypes or ["float32"] * len(numel)
    tensors = tuple(TensorSpec(f"t{i}", (n,), dtype) for i, (n, dtype) in enumerate(zip(numel, dtypes, strict=True)))
    return Profile("test", tensors, tuple(gap_s), 0.0, ORIGIN)


def affine_costs(
    world_size: int = 8,
    alpha_s: float = 2e-5,
    beta: float = 8e-10,
    encode: tuple[float, float] = (3e-4, 4e-10),
    decode: tuple[float, float] = (5e-5, 1e-10),
    host: tuple[float, float] = (6e-4, 1e-9),
) -> Costs:
    """Instance A's costs unless told otherwise: seconds, seconds per element, seconds per byte."""
    return Costs(
        world_size,
        Curve.affine(*encode),
        Curve.affine(*host),
        Curve.affine(*decode),
        ring_exchange(world_size, alpha_s, beta),
        ORIGIN,
    )


def instance_a() -> Profile:
    return make_profile(A_NUMEL, [gap * 1e-3 for gap in A_GAP_MS])


def model_sizes(name: str) -> list[int]:
    path = Path(__file__).parents[1] / "data" / "tensor_sizes.json"
    sizes: list[int] = json.loads(path.read_text())[name]
    return sizes


def random_instance(rng: random.Random, num_tensors: int) -> tuple[list[int], list[float]]:
    numel = [int(10 ** rng.uniform(0, 6.5)) for _ in range(num_tensors)]
    return numel, [rng.uniform(0, 2e-3) for _ in numel]


def random_costs(rng: random.Random, world_size: int) -> Costs:
    return affine_costs(
        world_size,
        alpha_s=10 ** rng.uniform(-6, -4),
        beta=10 ** rng.uniform(-11, -8.5),
        encode=(rng.uniform(0, 1e-3), rng.uniform(0, 1e-9)),
        decode=(rng.uniform(0, 2e-4), rng.uniform(0, 2e-10)),
        host=(rng.uniform(0, 2e-3), rng.uniform(0, 3e-9)),
    )


def random_table(rng: random.Random) -> Curve:
    """A measured-looking curve: piecewise linear, not affine, sometimes not even increasing."""
    sizes = sorted(rng.sample(range(1, 3_000_000), 5))
    seconds = [rng.uniform(0, 1e-3) for _ in sizes]
    if rng.random() < 0.5:
        seconds.sort()
    return Curve(tuple(map(float, sizes)), tuple(seconds))


def plan_of(scheme: str, profile: Profile, world_size: int, buckets: Sequence[Bucket]) -> Plan:
    chosen = tuple(buckets)
    return Plan(scheme, world_size, profile.tensors, chosen, launch_in_order(chosen, profile.tensors))


def gather(*segments: Segment) -> Bucket:
    return Bucket((Lane("all_gather", segments),))


def names(positions: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"t{i}" for i in positions)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """1 to 40 tensors of 0 to 2^27 elements, below the 2^31 that 32-bit indices address, in one or two dtypes."""
    sizes = st.one_of(st.sampled_from([0, 1, 2**20, 2**27]), st.integers(0, 5000), st.integers(0, 2**21))
    numel = draw(st.lists(sizes, min_size=1, max_size=40))
    large = [i for i, n in enumerate(numel) if n == 2**27]
    for i in large[15:]:
        numel[i] = 2**10
    gaps = draw(st.lists(st.floats(0, 5e-3), min_size=len(numel), max_size=len(numel)))
    kinds = draw(st.sampled_from([["float32"], ["float32", "bfloat16"]]))
    dtypes = draw(st.lists(st.sampled_from(kinds), min_size=len(numel), max_size=len(numel)))
    return make_profile(numel, gaps, dtypes)


@st.composite
def cost_tables(draw: st.DrawFn) -> Costs:
    rng = random.Random(draw(st.integers(0, 10**6)))
    costs = random_costs(rng, draw(st.sampled_from([1, 2, 4, 8, 64, 4096])))
    if draw(st.booleans()):
        tables = [random_table(rng) for _ in range(3)]
        costs = Costs(costs.world_size, tables[0], tables[1], tables[2], costs.exchange, ORIGIN)
    return costs
