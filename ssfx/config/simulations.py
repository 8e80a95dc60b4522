"""From the words of `ssfx simulate` to the steps it computes: any model on any cluster, without its data."""

from collections.abc import Iterable
from dataclasses import replace

from ssfx.config.clusters import check_recorded, choice_at
from ssfx.config.components import completed, components, on_nodes
from ssfx.config.compose import Point, chosen, compose, expanded
from ssfx.config.iteration_time import KEY, split_words, timed_model
from ssfx.config.overrides import read
from ssfx.config.schema import Settings
from ssfx.config.shared_model import SHARDING_KEYS, of_case, shared_model, with_memory
from ssfx.config.sweep import points_of
from ssfx.core.case import LATER_FIELDS, Case
from ssfx.core.errors import ConfigError
from ssfx.perf_model.cluster_file import cluster_of
from ssfx.perf_model.compressor_times import fused_version
from ssfx.perf_model.operator_counts import is_counted, model_work
from ssfx.perf_model.roofline import STEP_TRAFFIC
from ssfx.perf_model.saved_profiles import is_saved, saved_profile
from ssfx.perf_model.target import target_of
from ssfx.schemes import schemes
from ssfx.schemes.ddp_quantized import in_blocks

PLAN_KEYS = (
    "scheme",
    "compressor",
    "model",
    "workload",
    "cluster",
    "density",
    "world_size",
    "device",
    "precision",
    "batch_size",
    "optimizer",
    *SHARDING_KEYS,
)
"""What a plan depends on."""

SIMULATION_KEYS = (*PLAN_KEYS, "accumulate", "memory")
"""What a simulated step depends on."""

WITHOUT_EFFECT = (
    "checkpoint_every",
    "clip_norm",
    "data_workers",
    "decay_only_matrices",
    "evaluate",
    "evaluate_every",
    "jobs",
    "lr",
    "lr_warmup",
    "memory",
    "milestones",
    "momentum",
    "preset",
    "repeats",
    "scale_lr_by_ranks",
    "schedule",
    "seed",
    "stall_timeout_s",
    "steps",
    "target_metric",
    "target_value",
    "time_compute_only",
    "warmup_steps",
    "weight_decay",
)
"""Keys that, with their options, change nothing about a simulated step."""


def check_keys(keys: Iterable[str]) -> None:
    """Raise ConfigError for the first key that would have no effect on a simulation."""
    for key in keys:
        if key.partition(".")[0] in WITHOUT_EFFECT or key == "model.path" or key.startswith("dataset."):
            raise ConfigError(f"{key} has no effect on a simulated step; drop it")


def simulated(case: Case) -> Case:
    """Return `case` as one step in virtual time, with the calibration that is here; ConfigError when there is none."""
    if case.threads != 1:
        raise ConfigError(f"threads={case.threads} cannot be simulated: profiles are of one thread per rank; drop it")
    kept = ("calibration", "counts", *SHARDING_KEYS)
    later = {name: default for name, default in LATER_FIELDS.items() if name not in kept}
    one = replace(case, steps=1, warmup_steps=0, seed=0, repeat=0, evaluate=False, checkpoint_every=0, **later)
    return calibrated(one)


def calibrated(case: Case) -> Case:
    """Return `case` with the calibration that is here, and the version of fused kernels where its times rest on them.

    They do where its compressor is a quantiser that such a kernel encodes, or its scheme chooses among compressors.
    """
    target = target_of(replace(case, counts=fused_version()))
    kind = schemes[case.scheme]
    specs = [spec for spec in (case.compressor, case.shard_compressor, case.weights) if spec is not None]
    if case.compressor and "quantized_all_reduce" in kind.collectives:
        specs.append(in_blocks(case.compressor))
    chooses = case.compressor is None and case.scheme == "auto"
    names = target.system.codecs if chooses else specs
    uses = any(target.system.codec(spec) != target.counted.codec(spec) for spec in names)
    return replace(case, calibration=target.calibration, counts=fused_version() if uses else "")


def resolve_simulations(words: Iterable[str]) -> list[Case]:
    """Return the cases that `words` ask for, each once and never to be stored; ConfigError for a key without effect."""
    words, iteration_ms = split_words(words)
    request = read(words)
    for key in request:
        if key not in SIMULATION_KEYS and not key.startswith(("scheme.", "compressor.", "cluster.")):
            known = ", ".join((*SIMULATION_KEYS, KEY))
            raise ConfigError(f"a simulated step does not depend on {key}; it takes {known}")
    if "memory" in request and set(request.get("sharding", ("none",))) <= {"none"}:
        raise ConfigError(
            "memory has no effect on a simulated step with sharding=none; drop it, or add sharding=fsdp, where it "
            "keeps a whole model on every rank"
        )
    points = [expanded({"scheme": chosen(point, "scheme"), **point}) for point in points_of(request)]
    cases = [_case(point, iteration_ms, "memory" in request) for point in completed(points)[0]]
    return list({case.run_id: case for case in cases}.values())


def with_custom(point: Point) -> Point:
    """Return `point`; a model that is chosen without a workload gets its customary batch size and optimizer.

    A saved profile has those that it was made with.
    """
    if "model" not in point or "workload" in point:
        return point
    if is_saved(point["model"]):
        saved = saved_profile(point["model"])
        step = saved.optimizer if saved.optimizer in STEP_TRAFFIC else "sgd"
        return {"batch_size": saved.batch_size or 1, "optimizer": step, **point}
    if not is_counted(point["model"]):
        return point
    work = model_work(point["model"])
    return {"batch_size": work.batch_size, "optimizer": work.optimizer, **point}


def _case(point: Point, iteration_ms: float | None, asks_memory: bool) -> Case:
    config = compose(with_custom(point))
    settings = Settings.of(config)
    cluster = cluster_of(config["cluster"], settings.world_size, settings.device)
    check_recorded(point, cluster)
    parts = components(config, settings.density, asked="density" in point)
    shared = shared_model(settings, cluster)
    parts = with_memory(on_nodes(parts, cluster, shared), shared, asked=asks_memory)
    case = Case(
        experiment="simulate",
        model=timed_model(config["model"]["name"], iteration_ms),
        dataset="",
        scheme=parts.scheme,
        cluster=choice_at(point, cluster),
        world_size=cluster.world_size,
        batch_size=settings.batch_size,
        compressor=parts.compressor,
        density=parts.density,
        memory=parts.memory,
        scheme_options=parts.scheme_options,
        device="cpu" if cluster.device == "cpu" else "cuda",
        optimizer=settings.optimizer,
        accumulate=settings.accumulate,
        precision=settings.precision,
        **of_case(settings, shared),
    )
    return simulated(case)
