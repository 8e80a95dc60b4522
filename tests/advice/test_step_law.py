"""Extra steps over dense training by the length of training: a delay and a factor, told apart from curves."""

from dataclasses import replace

import pytest
from results.test_store import make_row
from workloads.fakes import make_case

from experiments.auto.figures import STEP_LAW
from experiments.common.pages.step_law import step_law_block, varied_block
from ssfx.core.rows import Row
from ssfx.lab.calibration.batch_growth import batch_growth
from ssfx.lab.calibration.step_law import fitted, step_laws
from ssfx.perf_model.operator_counts import model_work

EVERY = range(40, 2001, 40)


def long_row(scheme: str, seed: int, delay: float, factor: float, steps: int = 2000, **changes: object) -> Row:
    """Return a row whose perplexity after s steps is that of dense training after (s - delay) / (1 + factor)."""
    case = make_case(
        experiment="long_quality",
        scheme=scheme,
        seed=seed,
        steps=steps,
        evaluate=True,
        evaluate_every=40,
        target_metric="perplexity",
        target_value=90.0,
        **changes,
    )
    quality = [10_000 / (1000 + max(step - delay, 0.0) / (1 + factor)) for step in EVERY]
    curve = {"step": [float(step) for step in EVERY], "perplexity": quality}
    return Row(case.run_id, case, {}, make_row().origin, curve=curve)  # type: ignore[arg-type]


def test_a_delay_and_a_factor_are_found_again_and_told_apart() -> None:
    rows = [long_row("ddp", seed, 0, 0) for seed in range(3)]
    rows += [long_row("topk", seed, 80, 0.0) for seed in range(3)]
    rows += [long_row("powersgd", seed, 0, 0.3) for seed in range(3)]
    late, slow = (step_laws(rows)[name] for name in ("topk", "powersgd"))
    assert late.delay_steps == pytest.approx(80, abs=3)
    assert late.factor == pytest.approx(0, abs=0.01)
    assert slow.delay_steps == pytest.approx(0, abs=3)
    assert slow.factor == pytest.approx(0.3, abs=0.01)
    assert late.more_steps(100) > slow.more_steps(100)
    assert late.more_steps(10_000) < slow.more_steps(10_000)  # the order turns over with the horizon
    assert slow.unreached == pytest.approx(1 - 1 / 1.3, abs=0.02)
    page = step_law_block(rows)
    assert "Tasks: conv with sgd: resnet_tiny, rate 0.05; 2,000 steps." in page
    assert "powersgd | resnet_tiny, rate 0.05 | - | 3 | " in page


def test_a_method_that_reaches_less_than_half_of_the_levels_has_no_law_on_the_page() -> None:
    rows = [long_row("ddp", 0, 0, 0), long_row("topk", 0, 0, 0.9), long_row("powersgd", 0, 0, 1.2)]
    page = step_law_block(rows)
    assert "| topk | resnet_tiny, rate 0.05 | - | 1 | +0 | +90.0 % |" in page
    assert "| powersgd | resnet_tiny, rate 0.05 | - | 1 | - | - | - | - | - | 56 % |" in page


def test_the_laws_picture_names_the_tasks_of_which_the_law_says_nothing() -> None:
    dense, slow = (long_row(name, 0, 0, factor, world_size=2) for name, factor in (("ddp", 0), ("powersgd", 1.2)))
    silent = "on resnet_tiny, where 1 run on 2 ranks with sgd never reached 56% of the levels in 2,000 steps"
    assert STEP_LAW.finding([dense, slow]) == f"PowerSGD, rank 4: unknown {silent}"
    never = long_row("powersgd", 0, 0, 1e6, world_size=2)
    assert "never reached 100% of the levels" in STEP_LAW.finding([dense, never])
    other = [
        long_row(scheme, 0, 0, factor, model="lstm_tiny", world_size=2)
        for scheme, factor in (("ddp", 0), ("powersgd", 0.2))
    ]
    assert (
        STEP_LAW.finding([dense, slow, *other]) == f"PowerSGD, rank 4 +20% to +20% steps by task (but unknown {silent})"
    )


def test_runs_of_virtual_ranks_count_and_those_of_both_count_once() -> None:
    virtual = {"virtual": "cpu", "calibration": "measured:0a1b2c3d"}
    dense, late = (
        [long_row("ddp", 0, 0, 0), long_row("ddp", 1, 0, 0, **virtual)],
        long_row("topk", 1, 80, 0.0, **virtual),
    )
    late.metrics["contributed_bytes"] = 1000.0  # type: ignore[index]
    law = step_laws([*dense, late])["topk"]
    assert (law.runs, law.delay_steps) == (1, pytest.approx(80, abs=3))
    assert law.compression is not None
    assert law.compression > 1
    assert step_laws([*dense, late, long_row("topk", 1, 80, 0.0)])["topk"].runs == 1


def test_runs_of_other_ranks_or_batches_are_compared_with_dense_ones_of_theirs() -> None:
    assert step_laws([long_row("ddp", 0, 0, 0), long_row("topk", 0, 20, 0, world_size=8)]) == {}
    assert step_laws([long_row("ddp", 0, 0, 0), long_row("topk", 0, 20, 0, batch_size=16)]) == {}


def test_runs_of_each_rate_are_compared_with_dense_ones_at_it() -> None:
    dense = [long_row("ddp", 0, 0, 0, lr=0.1), long_row("ddp", 0, 0, 0, lr=0.1, world_size=8)]
    own = {"lr": 0.1, "density": 0.01, "memory": "residual"}
    rows = [long_row("topk", 0, 0, 0.2, **own), long_row("topk", 0, 0, 0.4, world_size=8, **own)]
    tuned = [long_row("topk", 0, 0, 0.1, **{**own, "lr": 0.2}), long_row("ddp", 0, 0, -0.05, lr=0.2)]
    for row in (*dense, *rows, *tuned):
        row.metrics["perplexity"] = row.curve["perplexity"][-1]  # type: ignore[index]
    shares = sorted(factor for _, factor in step_laws([*tuned, *dense, *rows])["topk@0.01"].each)
    assert shares == pytest.approx([1.1 / 0.95 - 1, 0.2], abs=0.01)
    growth, _, _, _, *lines = varied_block([*dense, *rows, *tuned]).splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines]
    assert [(ranks, rate, more) for _, _, ranks, rate, _, _, more, _ in cells] == [
        ("1 x 4", "0.2", "-5 %"),
        ("1 x 4", "0.1", "+20 %"),
        ("1 x 4", "0.2", "+16 %"),
        ("8 x 4", "0.1", "+40 %"),
    ]
    assert growth == (
        "Extra steps of what feeds errors back grow with the batch of all ranks, in tokens or images, to the power of "
        "0.33 (0.33 to 0.33 for each method and task alone), by 2 runs of 1 task and 4 to 32 a step."
    )
    assert "long_quality" in varied_block([*dense, rows[0]])  # a method with a single set-up has no line


def test_a_run_that_sent_everything_dense_says_nothing_of_its_compressor() -> None:
    dense, run = long_row("ddp", 0, 0, 0), long_row("ssfusion_oi", 0, 0, 0.0, compressor="dgc", density=0.01)
    run.metrics["contributed_bytes"] = 1000.0  # type: ignore[index]
    assert step_laws([dense, run])["ssfusion_oi/dgc@0.01"].runs == 1
    run.metrics["contributed_bytes"] = float(sum(one.nbytes for one in model_work("resnet_tiny").tensors))  # type: ignore[index]
    assert step_laws([dense, run]) == {}


def test_extra_steps_of_error_feedback_grow_with_a_power_of_the_batch_on_however_many_ranks() -> None:
    """Of one task they grow as the square root of the batch, of the other as the fourth root."""
    rows = []
    for optimizer, power in (("sgd", 0.5), ("adamw", 0.25)):
        for ranks, batch in ((2, 1), (2, 4), (8, 4)):
            on = {"world_size": ranks, "batch_size": batch, "optimizer": optimizer}
            rows += [long_row("ddp", 0, 0, 0, **on), long_row("ddp_fp16", 0, 0, 0.02 * ranks * batch, **on)]
            rows.append(long_row("topk", 0, 0, 0.1 * (ranks * batch) ** power, memory="residual", **on))
    found = batch_growth(rows)
    assert found is not None
    assert (found.exponent, found.low, found.high) == pytest.approx((0.375, 0.25, 0.5), abs=0.02)
    assert (found.batch, found.runs, found.tasks) == ((2, 32), 6, 2)
    few_bits = [replace(row, metrics={"kept_back": 0.2}) for row in rows]
    assert batch_growth(few_bits) is None, "what keeps back little does not grow"
    one_number = [row for row in rows if row.case.world_size == 8]
    assert batch_growth(one_number) is None
    mine = [row for row in rows if row.case.optimizer == "sgd"]
    more = {"world_size": 2, "batch_size": 4}
    mine += [long_row("ddp", 1, 0, 0, **more), long_row("topk", 1, 0, 0.3, memory="residual", **more)]
    assert step_laws(mine)["topk"].runs == 2, "a law is of the batch of most runs"


def test_an_interval_covers_runs_that_differ_and_few_runs_have_none() -> None:
    delays = (20, 40, 60, 80)
    rows = [long_row("ddp", seed, 0, 0) for seed in range(4)]
    rows += [long_row("topk", seed, delay, 0.0) for seed, delay in enumerate(delays)]
    law = step_laws(rows)["topk"]
    assert law.delay_interval is not None
    assert 20 <= law.delay_interval[0] < law.delay_steps < law.delay_interval[1] <= 83
    few = step_laws([row for row in rows if row.case.seed < 2])["topk"]
    assert few.delay_interval is None
    assert few.factor_interval is None


def test_short_runs_and_runs_without_a_dense_one_say_nothing() -> None:
    assert step_laws([long_row("ddp", 0, 0, 0, steps=500), long_row("topk", 0, 20, 0, steps=500)]) == {}
    assert step_laws([long_row("ddp", 0, 0, 0), long_row("topk", 1, 20, 0)]) == {}
    assert "long_quality" in step_law_block([])


def test_one_horizon_gives_a_factor_alone() -> None:
    assert fitted([(100.0, 20.0)]) == (0.0, 0.2)


def test_no_training_is_shorter_than_a_step() -> None:
    law = step_laws([long_row("ddp", 0, 0, 0), long_row("topk", 0, 20, 0)])["topk"]
    with pytest.raises(ValueError, match="at least 1"):
        law.more_steps(0)
