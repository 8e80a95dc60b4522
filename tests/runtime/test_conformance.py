"""One suite over every scheme x compressor x memory x world size that may be combined (real gloo processes)."""

import pytest
import torch
from plan.options import keeps_all
from runtime import work
from runtime.cases import BIASED, CASES, DENSE, SPARSE, THOROUGH, Options, ident, in_turn, name, of_scheme, profiled
from runtime.ranks import Ranks

WORLDS = (2, 3)


@in_turn("scheme,world", [s for s in [*DENSE, *SPARSE] if keeps_all(s) is not None], WORLDS)
def test_density_one_equals_ddp(ranks: Ranks, scheme: str, world: int) -> None:
    options = of_scheme(scheme, world, density=1.0)
    for kind in ("mlp", "tied"):
        worst = ranks.run(work.density_one_equals_ddp, world, kind, options)
        assert max(worst) < 2e-6, kind


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("placement", ["device", pytest.param("host", marks=pytest.mark.slow)])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("compressor", "collective", "tolerance"),
    [
        ("topk", "all_gather", 1e-6),
        ("topk", "all_gather_v", 1e-6),
        ("dgc", "all_gather", 1e-6),
        ("dgc", "all_gather_v", 1e-6),
        ("randomk", "all_reduce", 1e-6),
        ("randomk(shared=False)", "all_gather", 1e-6),
        ("fp16", "all_reduce", 1e-3),
        ("bf16", "all_reduce", 1e-2),
    ],
)
def test_compressors_that_keep_everything_give_the_dense_average(
    ranks: Ranks, world: int, placement: str, fused: bool, compressor: str, collective: str, tolerance: float
) -> None:
    worst = ranks.run(work.average_with_plan, world, compressor, 1.0, collective, fused, placement)
    assert max(worst) < tolerance


@in_turn("options,world", [case for case in CASES if case["scheme"] not in BIASED], WORLDS)
def test_mass_is_conserved(ranks: Ranks, world: int, options: Options) -> None:
    for violation, kept in ranks.run(work.conserves_mass, world, options):
        assert violation < 1e-5
        assert kept > 0  # something was held back, so the equation above says more than 0 = 0


# Before its plan exists (five iterations), what a profiled scheme will plan depends on measured times.
RESUMES = [
    pytest.param(o, cut, marks=[pytest.mark.slow] if cut == 3 and o["scheme"] not in THOROUGH else [])
    for o in [*CASES, {"scheme": "ddp"}]
    for cut in (3, 7)
    if cut > 5 or not profiled(o)
]
BAD = [
    (o, float(bad))
    for o in [*CASES, {"scheme": "ddp"}, {"scheme": "ddp", "compressor": "fp16"}]
    for bad in ("nan", "inf", "-inf")
    if bad == "nan" or o["scheme"] in THOROUGH  # any other scheme sees one kind of number that is not finite
]


@pytest.mark.parametrize(("options", "cut"), RESUMES, ids=ident)
def test_a_resumed_run_equals_an_uninterrupted_one(ranks: Ranks, options: Options, cut: int) -> None:
    assert all(ranks.run(work.resumes_exactly, 2, options, cut))


@in_turn("case,world", BAD, WORLDS)
def test_a_step_with_one_bad_number_leaves_no_trace(ranks: Ranks, case: tuple[Options, float], world: int) -> None:
    options, bad = case
    reports = ranks.run(work.rolls_back, world, options, bad)
    for report in reports:
        assert report["skipped"]
        assert report["without_grad"]
        assert report["memory_kept"]
        assert report["weights_kept"]
        assert report["goes_on"]
        assert_same(report["weights"], reports[0]["weights"])


@pytest.mark.parametrize("options", [*CASES, {"scheme": "ddp"}], ids=name)
def test_accumulated_micro_steps_equal_one_step(ranks: Ranks, options: Options) -> None:
    # The sum of two gradients is rounded differently from the gradient of a sum, so a selection may tip over once.
    assert max(ranks.run(work.accumulates, 2, options)) < 2e-3


@in_turn("options,world", [*CASES, *(of_scheme(s, 2) for s in DENSE)], WORLDS)
def test_replicas_stay_equal_whatever_order_gradients_arrive_in(ranks: Ranks, world: int, options: Options) -> None:
    for work_function in (work.survives_disorder, work.rank_without_gradients):
        results = ranks.run(work_function, world, options)
        for weights in results[1:]:
            assert_same(weights, results[0])


@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "ddp"},
        {"scheme": "per_tensor", "compressor": "topk", "density": 0.05},
        {"scheme": "fused_all", "compressor": "topk", "density": 0.05},
    ],
    ids=name,
)
def test_a_grad_scaler_changes_nothing_but_the_range(ranks: Ranks, options: Options) -> None:
    for report in ranks.run(work.scaled, 2, options):
        assert report["worst"] < 1e-5  # powers of two: residuals rescale exactly
        assert report["grown"] > 256.0
        assert report["after"] == report["grown"] / 2
        assert report["weights_kept"]


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    for parameter in a:
        assert torch.equal(a[parameter], b[parameter]), parameter
