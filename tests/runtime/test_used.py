"""What becomes of an exchange: its memory is committed when an optimizer steps, else undone with its gradients."""

import pytest
from plan.options import keeps_all
from runtime import work_used as work
from runtime.cases import BIASED, DENSE, SPARSE, Options, in_turn, name, of_scheme
from runtime.pool import Pool
from runtime.ranks import Ranks

from ssfx.schemes import schemes

FEEDBACK = [scheme for scheme in SPARSE if scheme not in BIASED]


@pytest.mark.parametrize(("seed", "world"), [(0, 2), pytest.param(1, 3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scheme", ["ddp", *FEEDBACK])
def test_what_is_applied_and_kept_is_what_was_stepped_with(ranks: Ranks, scheme: str, seed: int, world: int) -> None:
    options = of_scheme(scheme, world, density=0.1)
    if "sgd" in scheme:  # the default rank holds these small matrices whole
        options["compressor"] = f"{scheme}(rank=1)"
    reports = ranks.run(work.keeps_mass, world, options, seed)
    for violation, _, agree in reports:
        assert violation < 2e-5
        assert agree
    if scheme != "ddp" and not schemes[scheme].profiled:
        assert max(kept for _, kept, _ in reports) > 0


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 200))
def test_ten_random_scripts_keep_what_they_do_not_apply(ranks: Ranks, seed: int) -> None:
    options = [of_scheme("topk", 2, density=0.1), of_scheme("per_tensor", 2, density=0.1)][seed % 2]
    for reports in (ranks.run(work.keeps_mass, 2, options, 10 * seed + number) for number in range(10)):
        for violation, _, agree in reports:
            assert violation < 2e-5
            assert agree


@in_turn("scheme,world", [s for s in [*DENSE, *SPARSE] if keeps_all(s) is not None], (3, 2))
def test_a_random_script_at_density_one_ends_where_ddp_does(pool: Pool, scheme: str, world: int) -> None:
    assert max(pool.run(work.follows_ddp, world, of_scheme(scheme, world, density=1.0), 5)) < 1e-5


@pytest.mark.parametrize("options", [of_scheme(s, 2, density=0.1) for s in ["ddp", *FEEDBACK]], ids=name)
def test_parameters_that_are_unfrozen_later_are_exchanged_from_then_on(ranks: Ranks, options: Options) -> None:
    for violation, agree, tensors in ranks.run(work.thaws, 2, options):
        assert violation < 2e-5
        assert agree
        assert tensors == 8


def test_an_optimizer_that_steps_inside_backward_is_refused(pool: Pool) -> None:
    for text in pool.run(work.steps_inside_backward, 2):
        assert "inside the backward pass" in text


def test_undone_steps_are_said_at_the_first_and_the_tenth_with_the_reason(pool: Pool) -> None:
    (first, said), (last, reason) = pool.run(work.undone_steps, 2)
    assert first == last == 12
    assert [line.split(":")[0] for line in said] == [line.split(":")[0] for line in reason]
    assert [line.split("(")[1].split(" ")[0] for line in reason] == ["1", "10"]
    assert "another rank" in said[0]
    assert "in the gradient of" in reason[0]


@pytest.mark.parametrize("size", [1e5, 1e6])
@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "topk", "compressor": "topk(value_dtype=float16)", "density": 0.5},
        {"scheme": "per_tensor", "compressor": "dgc(value_dtype=float16)", "density": 0.5},
        {"scheme": "per_tensor", "compressor": "randomk(value_dtype=float16)", "density": 0.5},
        {"scheme": "cltk", "compressor": "cltk(value_dtype=float16)", "density": 0.5},
        {"scheme": "ddp_fp16"},
        {"scheme": "ddp", "compressor": "fp16(error_feedback=true)"},
    ],
    ids=name,
)
def test_a_finite_gradient_beyond_16_bits_is_cut_counted_and_the_rest_kept(
    pool: Pool, options: Options, size: float
) -> None:
    for skipped, first, share, cut, said in pool.run(work.large_values, 2, options, size):
        assert skipped == 0
        assert first == pytest.approx(65440, rel=1e-3)
        assert cut > 0
        assert len([line for line in said if "were cut" in line]) == 1  # in every attach, not in every process
        if options["scheme"] == "ddp_fp16":  # it has no memory
            assert share < 0.7
            assert any("is lost" in line for line in said)
        else:
            assert share == pytest.approx(1, rel=1e-3)
            assert any("is sent in later steps" in line for line in said)
