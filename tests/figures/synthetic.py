"""Made-up rows for tests of the figures; they never leave a temporary directory."""

from statistics import median
from typing import Any

from ssfx.core.case import Case
from ssfx.core.origin import Kind, Origin
from ssfx.core.rows import Row

WORKLOADS = {
    "resnet_tiny": ("digits", 32, 900.0),
    "lstm_tiny": ("stdlib_text", 16, 210.0),
    "gpt2_tiny": ("stdlib_text", 8, 64.0),
}
SCHEMES = {
    "ssgd": 0.71,
    "wfbp": 0.74,
    "ddp": 0.82,
    "per_tensor": 0.55,
    "fused_all": 0.78,
    "ssfusion_naive": 0.66,
    "ssfusion_o": 0.63,
    "ssfusion_i": 0.69,
    "ssfusion_oi": 0.68,
}
DENSE = ("ssgd", "wfbp", "ddp")


def row(
    *,
    experiment: str = "throughput",
    model: str = "resnet_tiny",
    scheme: str = "ddp",
    cluster: str = "local",
    world_size: int = 2,
    repeat: int = 0,
    kind: Kind = "measured",
    hardware: str = "Invented CPU, 2 cores",
    date: str = "2026-01-01T00:00:00+00:00",
    metrics: dict[str, float | None] | None = None,
    manifest: dict[str, Any] | None = None,
    density_ratios: dict[str, int] | None = None,
    **case: Any,
) -> Row:
    """Return a row whose throughput follows SCHEMES, with parts that sum to the iteration time."""
    dataset, batch_size, single = WORKLOADS[model]
    sparse = {} if scheme in DENSE else {"compressor": "dgc", "density": 0.01, "memory": "residual"}
    what = Case(
        experiment=experiment,
        model=model,
        dataset=dataset,
        scheme=scheme,
        cluster=cluster,
        world_size=world_size,
        batch_size=batch_size,
        seed=repeat,
        repeat=repeat,
        **{**sparse, **case},
    )
    samples_per_s = (
        single * world_size * (1 if world_size == 1 else SCHEMES.get(scheme, 0.5)) * (1 + 0.03 * (repeat - 1))
    )
    iteration_s = batch_size * world_size / samples_per_s
    shares = {
        "forward_s": 0.2,
        "backward_s": 0.4,
        "sparsify_s": 0.0 if scheme in DENSE else 0.12,
        "exposed_comm_s": 0.0 if world_size == 1 else 0.15,
        "step_s": 0.08,
    }
    found: dict[str, float | None] = {name: share * iteration_s for name, share in shares.items()}
    found["other_s"] = (1 - sum(shares.values())) * iteration_s
    found["comm_s"] = 0.0 if world_size == 1 else 0.3 * iteration_s
    found |= {"achieved_density": 0.01, "iteration_s": iteration_s, "throughput_samples_per_s": samples_per_s}
    found |= {"perplexity": 4.0 + repeat / 10} if dataset == "stdlib_text" else {"top1": 0.9 - repeat / 100}
    return Row(
        what.run_id,
        what,
        {**found, **(metrics or {})},
        Origin(kind, hardware, date),
        manifest or {},
        {},
        density_ratios or {},
    )


def throughput(**fixed: Any) -> list[Row]:
    """Return rows like those of experiment=throughput with three repeats."""
    rows = []
    for model in WORKLOADS:
        for repeat in range(3):
            rows.append(row(model=model, scheme="ssgd", world_size=1, repeat=repeat, **fixed))
            rows += [row(model=model, scheme=scheme, repeat=repeat, **fixed) for scheme in SCHEMES]
    return rows


RATIOS = {"topk": {"0": 90, "-1": 10}, "dgc": {"0": 80, "3": 20}, "sidco": {"nothing": 10, "-16": 40, "0": 50}}


def achieved_density(**fixed: Any) -> list[Row]:
    """Return rows like those of experiment=achieved_density: two repeats of three compressors."""
    return [
        row(
            experiment="achieved_density",
            scheme="per_tensor",
            repeat=repeat,
            compressor=compressor,
            density_ratios=ratios,
            **fixed,
        )
        for compressor, ratios in RATIOS.items()
        for repeat in range(2)
    ]


def compressor_row(
    compressor: str, numel: int, times_s: list[float], hardware: str = "Invented CPU, 2 cores", **changes: Any
) -> Row:
    """Return a row as benchmarks/compressors.py writes it."""
    case = Case(
        experiment="compressors",
        model=f"vector(numel={numel})",
        dataset="laplace",
        scheme="per_tensor",
        cluster="local",
        world_size=1,
        batch_size=1,
        compressor=compressor,
        density=0.01,
        **changes,
    )
    origin = Origin("measured", hardware, "2026-01-01T00:00:00+00:00")
    return Row(case.run_id, case, {"compress_s": median(times_s)}, origin, {}, {"compress_s": times_s})


def latencies() -> list[Row]:
    """Return rows of five sparsifiers and one more, whose time is 0.1 ms and then 1 ns an element."""
    names = ("dgc", "gaussiank", "randomk", "redsync", "sidco", "topk")
    sizes = (250, 2_500, 25_000, 250_000, 2_500_000, 25_000_000)
    return [
        compressor_row(name, numel, [(1e-4 + 1e-9 * numel) * (0.8 + 0.1 * i) for i in range(5)])
        for name in names
        for numel in sizes
    ]
