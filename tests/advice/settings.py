"""A small model on small clusters of one link, for the tests of advice."""

from ssfx.advice import Setting
from ssfx.core.origin import Origin
from ssfx.perf_model.cluster import Cluster, Link
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile

MODEL = Profile(
    "toy",
    tuple(TensorSpec(f"t{i}", (numel,)) for i, numel in enumerate((1000, 4_000_000, 512, 3_000_000, 2_000_000, 64))),
    (0.001, 0.004, 0.001, 0.003, 0.002, 0.001),
    0.006,
    Origin("nominal", note="made up"),
    batch_size=8,
    device="a100",
    step_s=0.001,
)


def setting(gbps: float = 10.0, latency_s: float = 1e-5, nodes: int = 8, density: float = 0.01) -> Setting:
    """Return the small model on `nodes` of one A100 each, on which nothing is shared."""
    near, far = Link(1e7, 1.0, 0.0), Link(gbps, 1.0, latency_s)
    return Setting(Cluster("toy", "made up", nodes, 1, "a100", near, far, "made up"), MODEL, density)
