"""Made-up rows for tests of the figures; they never leave a temporary directory."""

from __future__ import annotations

from typing import Any

from ssfx.case import Case
from ssfx.origin import Kind, Origin
from ssfx.results.rows import Row

WORKLOADS = {
    "resnet_tiny": ("digits", 32, 900.0),
    "lstm_tiny": ("stdlib_text", 16, 210.0),
    "gpt2_tiny": ("stdlib_text", 8, 64.0),
}
SCHEMES = {
    "ssgd": 0.71, "wfbp": 0.74, "ddp": 0.82, "per_tensor": 0.55, "fused_all": 0.78, "ssfusion_naive": 0.66,
    "ssfusion_o": 0.63, "ssfusion_i": 0.69, "ssfusion_oi": 0.68,
}  # fmt: skip
DENSE = ("ssgd", "wfbp", "ddp")


def row(
    *,
    experiment: str = "throughput",
    model: str = "resnet_tiny",
    scheme: str = "ddp",
    world_size: int = 2,
    repeat: int = 0,
    kind: Kind = "measured",
    hardware: str = "Invented CPU, 2 cores",
    date: str = "2026-01-01T00:00:00+00:00",
    metrics: dict[str, float | None] | None = None,
    manifest: dict[str, Any] | None = None,
    **case: Any,
) -> Row:
    """Return a row whose throughput follows SCHEMES, with parts that sum to the iteration time."""
    dataset, batch_size, single = WORKLOADS[model]
    sparse = {} if scheme in DENSE else {"compressor": "dgc", "density": 0.01, "memory": "residual"}
    what = Case(
        experiment=experiment, model=model, dataset=dataset, scheme=scheme, cluster="local", world_size=world_size,
        batch_size=batch_size, seed=repeat, repeat=repeat, **{**sparse, **case},
    )  # fmt: skip
    samples_per_s = (
        single * world_size * (1 if world_size == 1 else SCHEMES.get(scheme, 0.5)) * (1 + 0.03 * (repeat - 1))
    )
    iteration_s = batch_size * world_size / samples_per_s
    shares = {
        "forward_s": 0.2, "backward_s": 0.4, "sparsify_s": 0.0 if scheme in DENSE else 0.12,
        "exposed_comm_s": 0.0 if world_size == 1 else 0.15, "step_s": 0.08,
    }  # fmt: skip
    found: dict[str, float | None] = {name: share * iteration_s for name, share in shares.items()}
    found["other_s"] = (1 - sum(shares.values())) * iteration_s
    found["comm_s"] = 0.0 if world_size == 1 else 0.3 * iteration_s
    found |= {"iteration_s": iteration_s, "throughput_samples_per_s": samples_per_s}
    found |= {"perplexity": 4.0 + repeat / 10} if dataset == "stdlib_text" else {"top1": 0.9 - repeat / 100}
    return Row(what.run_id, what, {**found, **(metrics or {})}, Origin(kind, hardware, date), manifest or {})


def throughput(**fixed: Any) -> list[Row]:
    """Return rows like those of experiment=throughput with three repeats."""
    rows = []
    for model in WORKLOADS:
        for repeat in range(3):
            rows.append(row(model=model, scheme="ssgd", world_size=1, repeat=repeat, **fixed))
            rows += [row(model=model, scheme=scheme, repeat=repeat, **fixed) for scheme in SCHEMES]
    return rows
