"""Made-up rows like those of experiment=missing_rate."""

from typing import Any

from ssfx.core.case import Case
from ssfx.core.origin import Origin
from ssfx.core.rows import Row

DEGREES = (0, 20, 40, 60, 80, 100)
MODELS = {"resnet152_digits": "digits", "bert_large_narrow": "generated_questions"}
UNFUSED = {"per_tensor": {}, "ssfusion_naive": {"profile_iters": 2}, "ssfusion_oi": {"profile_iters": 2}}


def missing_row(scheme: str, rate: float | None, *, model: str = "resnet152_digits", **case: Any) -> Row:
    """Return a row of one scheme with the given missing rate."""
    fields = {
        "scheme_options": UNFUSED.get(scheme, {}),
        "density": 0.01,
        "memory": "residual",
        "steps": 13,
        "warmup_steps": 3,
        **case,
    }
    what = Case(
        experiment="missing_rate",
        model=model,
        dataset=MODELS.get(model, "digits"),
        scheme=scheme,
        cluster="local",
        world_size=2,
        batch_size=4,
        compressor="dgc",
        **fields,
    )
    origin = Origin("measured", "Invented CPU, 2 cores", "2026-01-01T00:00:00+00:00")
    metrics = {"tensor_missing_rate": rate, "sparsify_s": 0.02, "iteration_s": 0.1}
    return Row(what.run_id, what, metrics, origin)


def fused_row(degree: int, rate: float, **case: Any) -> Row:
    """Return a row of fused_all as it is after resolving: the default degree, 100, is not among its options."""
    return missing_row("fused_all", rate, scheme_options={} if degree == 100 else {"fusion_degree": degree}, **case)


def missing_rates() -> list[Row]:
    """Return rows of both models: 0.7 percent missing for each percent of fusion, nothing for the other schemes."""
    rows = []
    for model in MODELS:
        rows += [fused_row(degree, 0.007 * degree, model=model) for degree in DEGREES]
        rows += [missing_row(scheme, 0.0, model=model) for scheme in UNFUSED]
    return rows
