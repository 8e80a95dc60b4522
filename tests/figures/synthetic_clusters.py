"""Made-up simulated rows for tests of the figures of clusters; they never leave a temporary directory."""

from itertools import product
from typing import Any

from ssfx.core.case import Case
from ssfx.core.origin import Origin
from ssfx.core.rows import Row

SPEEDS = {
    "ddp": 1000.0,
    "hipress": 800.0,
    "oktopk": 900.0,
    "spardl": 950.0,
    "espresso": 850.0,
    "omgs": 980.0,
    "cupcake": 1000.0,
    "ssfusion_naive": 1100.0,
    "ssfusion_o": 1200.0,
    "ssfusion_oi": 1310.0,
}
"""Samples per second; ssfusion_oi is 31 to 64 % faster than the schemes it is compared with."""
OWN = {"oktopk": "topk", "spardl": "topk"}
DENSE = ("ddp", "ssgd")
PAPER = {"resnet152": (32, "sgd"), "bert_large": (4, "adamw"), "gpt2_xl": (1, "adamw")}
"""Batch size and optimizer with which papers ran a model: figures take no others."""


def simulated(
    scheme: str,
    *,
    experiment: str = "throughput",
    speed: float | None = None,
    world_size: int = 64,
    cluster: str = "64gpu",
    calibration: str = "nominal:1a2b3c4d",
    date: str = "2026-01-01T00:00:00+00:00",
    memory_gib: float = 30.0,
    device_gib: float = 80.0,
    extrapolated: bool = False,
    metrics: dict[str, float | None] | None = None,
    **case: Any,
) -> Row:
    """Return a row as engine=simulate writes it, of 64 times 25 samples/s for one device alone."""
    sparse = {} if scheme in DENSE else {"compressor": OWN.get(scheme, "dgc"), "density": 0.01, "memory": "residual"}
    if calibration.startswith("published"):
        name, _, options = cluster.partition("(")
        cluster = f"{name}(calibration=published{',' if options else ')'}{options}"
    model: dict[str, Any] = {"model": "resnet152", "dataset": "imagenet"} | case
    batch_size, optimizer = PAPER.get(model["model"], (4, "sgd"))
    what = Case(
        experiment=experiment,
        scheme=scheme,
        cluster=cluster,
        world_size=world_size,
        batch_size=batch_size,
        optimizer=optimizer,
        device="cuda",
        calibration=calibration,
        steps=1,
        warmup_steps=0,
        **{**sparse, **model},
    )
    samples_per_s = speed or (25.0 if world_size == 1 else SPEEDS.get(scheme, 500.0))
    iteration_s = batch_size * world_size / samples_per_s
    shares = {
        "forward_s": 0.2,
        "backward_s": 0.4,
        "sparsify_s": 0.1,
        "exposed_comm_s": 0.2,
        "step_s": 0.1,
        "other_s": 0.0,
        "comm_s": 0.35,
    }
    found: dict[str, float | None] = {name: share * iteration_s for name, share in shares.items()}
    found |= {"iteration_s": iteration_s, "throughput_samples_per_s": samples_per_s}
    found["contributed_bytes"] = 1e8 if scheme in DENSE else 1e6
    found |= {"peak_memory_bytes": memory_gib * 2**30, **(metrics or {})}
    manifest = {
        "device_memory_bytes": round(device_gib * 2**30),
        "extrapolated": ["dgc: 2 where 4 .. 8 is known"] if extrapolated else [],
    }
    kind = calibration.partition(":")[0]
    origin = Origin("simulated", f"invented devices ({kind} costs, nominal profile)", date)
    return Row(what.run_id, what, found, origin, manifest)


def setting(**fixed: Any) -> list[Row]:
    """Return one row a scheme, and that of one device alone."""
    return [simulated("ssgd", **{**fixed, "world_size": 1}), *(simulated(scheme, **fixed) for scheme in SPEEDS)]


def clusters() -> list[Row]:
    """Return rows for every figure of clusters, by both calibrations."""
    rows = []
    for calibration in ("nominal:1a2b3c4d", "published:5e6f7a8b"):
        by: dict[str, Any] = {"calibration": calibration}
        for nodes in (4, 8, 16):
            rows += setting(cluster=f"{4 * nodes}gpu", world_size=4 * nodes, **by)
        for experiment in ("breakdown", "density", "compressors"):
            rows += setting(experiment=experiment, **by)
        for density, scheme in product((0.1, 0.05), SPEEDS):
            if scheme not in DENSE:
                rows.append(simulated(scheme, experiment="density", density=density, **by))
        for compressor, scheme in product(("gaussiank", "redsync", "sidco"), SPEEDS):
            if scheme not in (*DENSE, *OWN):
                rows.append(simulated(scheme, experiment="compressors", compressor=compressor, **by))
        for gbps in (10, 50, 100):
            rows += setting(experiment="bandwidth", cluster=f"64gpu(inter.gbps={gbps})", **by)
        for cluster, gib in (("64gpu", 80.0), ("64gpu_40gb", 40.0)):
            xl: dict[str, Any] = {"model": "gpt2_xl", "dataset": "wikitext103"}
            rows += setting(experiment="large_models", cluster=cluster, device_gib=gib, memory_gib=38.0, **xl, **by)
        rows += [
            simulated(one, experiment="selective", model="bert_large", cluster="ssfusion_local", world_size=8, **by)
            for one in SELECTIVE
        ]
        rows += growth(**by)
    return rows


SELECTIVE = ("ddp", "per_tensor", "fused_all", "ssfusion_naive")


def growth(gathering: float = 9.0, reducing: float = 1.2, **by: Any) -> list[Row]:
    """Return rows of both collectives on 8 and on 64 GPUs, which take so many times longer there."""
    return [
        simulated(
            scheme,
            experiment="collective_scaling",
            model="bert_large",
            dataset="squad",
            world_size=size,
            cluster="64gpu" if size == 64 else "64gpu(nodes=2)",
            metrics={"comm_s": factor if size == 64 else 1.0},
            **({} if scheme in DENSE else {"density": 0.5}),
            **by,
        )
        for scheme, factor in (("ssgd", reducing), ("fused_all", gathering))
        for size in (8, 64)
    ]
