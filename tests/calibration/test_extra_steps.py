"""Extra steps over dense training: measured at every quality, and fitted with an interval over networks."""

from collections.abc import Callable
from dataclasses import replace
from math import exp, log, log1p
from statistics import fmean

import pytest
from results.test_store import make_row
from workloads.fakes import make_case

from experiments.auto.figures import BATCH, EXTRA_STEPS
from experiments.common.pages.long_runs import long_runs_block
from ssfx.core.files import read
from ssfx.core.paths import data_dir
from ssfx.core.rows import Row
from ssfx.lab.calibration import extra_steps as extra_steps_fit
from ssfx.lab.calibration.extra_steps import agreeing, at_usual, content, expected, fitted, recorded, records, text_of
from ssfx.lab.calibration.long_runs import dense_runs, log_steps, long_rows, place, setting_of
from ssfx.perf_model.operator_counts import model_work
from ssfx.schemes.search import extra_steps
from ssfx.schemes.search.extra_steps import MORE_STEPS

NETWORKS = {"resnet_tiny": "sgd", "lstm_tiny": "sgd", "gpt2_tiny": "adamw"}


def long_row(scheme: str, seed: int, slower: float = 0.0, steps: int = 2000, **changes: object) -> Row:
    """Return a row whose perplexity after s steps is that of dense training after s / (1 + slower)."""
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
    every = range(40, steps + 1, 40)
    quality = [10_000 / (1000 + step / (1 + slower)) for step in every]
    curve = {"step": [float(step) for step in every], "perplexity": quality}
    return Row(case.run_id, case, {}, make_row().origin, curve=curve)  # type: ignore[arg-type]


def powersgd(rank: int, slower: float, seed: int = 0, **changes: object) -> Row:
    return long_row("powersgd", seed, slower, compressor=f"powersgd(rank={rank})", memory="residual", **changes)


def trained(*runs: tuple[int, float], slower: Callable[[str], float] = lambda _: 1.0) -> list[Row]:
    """Return two dense seeds of each network, and a run for each rank with its extra steps, times `slower`."""
    rows = []
    for model, optimizer in NETWORKS.items():
        on = {"model": model, "optimizer": optimizer}
        rows += [long_row("ddp", seed, **on) for seed in (0, 1)]
        rows += [powersgd(rank, extra * slower(model), **on) for rank, extra in runs]
    return rows


@pytest.mark.parametrize(("slower", "unreached"), [(0.0, 0.0), (0.3, 0.24), (0.9, 0.48), (1.5, 0.6)])
def test_a_run_takes_so_many_more_steps_to_the_median_quality_or_at_least_so_many(
    slower: float, unreached: float
) -> None:
    found = log_steps(long_row("ddp", 0), long_row("topk", 0, slower))
    assert found is not None
    assert found.unreached == pytest.approx(unreached, abs=0.02)
    assert found.at_least is (slower > 1)
    if found.at_least:
        assert log(1.1) < found.value <= log(1 + slower)
    else:
        assert found.value == pytest.approx(log(1 + slower), abs=0.005)


def test_runs_are_compared_with_dense_ones_of_their_setting_ranks_batch_and_seed() -> None:
    dense, run = [long_row("ddp", 0), long_row("ddp", 1)], powersgd(4, 0.2)
    assert len(records([*dense, run])) == 1
    for other in ({"world_size": 8}, {"batch_size": 16}, {"lr": 0.5}, {"steps": 500}):
        assert records([*dense, powersgd(4, 0.2, **other)]) == []
    assert records([*dense, powersgd(4, 0.2, seed=2)]) == []


def test_runs_of_virtual_ranks_count_and_those_of_both_count_once() -> None:
    virtual = {"virtual": "cpu", "calibration": "measured:0a1b2c3d"}
    rows = [long_row("ddp", 0), long_row("ddp", 1, **virtual), powersgd(4, 0.2, seed=1, **virtual)]
    (one,) = records(rows)
    assert (len(one.rows), one.value) == (1, pytest.approx(log(1.2), abs=0.01))
    (both,) = records([*rows, powersgd(4, 0.2, seed=1)])
    assert len(both.rows) == 1


def test_a_run_that_sent_everything_dense_says_nothing_of_its_compressor() -> None:
    dense, run = long_row("ddp", 0), powersgd(4, 0.0)
    run.metrics["contributed_bytes"] = 1000.0  # type: ignore[index]
    assert len(records([dense, run])) == 1
    run.metrics["contributed_bytes"] = float(sum(one.nbytes for one in model_work("resnet_tiny").tensors))  # type: ignore[index]
    assert records([dense, run]) == []


def test_a_training_decides_only_where_two_dense_seeds_end_within_3_percent() -> None:
    def decides(*seeds: float) -> bool:
        dense = [long_row("ddp", seed, slower) for seed, slower in enumerate(seeds)]
        return bool(agreeing(long_rows(dense)))

    assert not decides(0.0)
    assert decides(0.0, 0.01)
    assert not decides(0.0, 0.2)
    assert decides(0.0, 0.05, 0.05, 0.025, 0.025), "the range of five seeds is wide by their number"
    rows = trained((4, 0.3))
    assert all(one.decides for one in records(rows))
    apart = [long_row("ddp", 2, 0.3, model="lstm_tiny"), *rows]
    assert {one.network for one in records(apart) if not one.decides} == {"lstm_tiny"}
    lone = [row for row in rows if row.case.scheme == "ddp" or row.case.model == "gpt2_tiny"]
    assert not any(one.decides for one in records(lone)), "a method of one network has no interval over networks"


def test_curves_never_fall_go_through_what_was_recorded_and_hold_it_in_their_interval() -> None:
    law = fitted(records(trained((32, 0.02), (16, 0.01), (4, 0.4), (1, 0.9))))
    heights = law["classes"]["low rank"]["log_steps"]
    assert heights == sorted(heights)
    assert heights[0] == pytest.approx(log(1.015), abs=0.01), "more steps at a smaller compression are noise"
    for one in records(trained((4, 0.4), (1, 0.9))):
        low, middle, high = expected(law, one)
        assert low <= one.value <= high
        assert middle == pytest.approx(one.value, abs=0.1)


def test_a_lower_bound_raises_a_curve_and_never_lowers_it() -> None:
    censored = records(trained((4, 0.4), (1, 2.5)))
    bound = next(one for one in censored if one.at_least)
    assert bound.value < log(3.5)
    _, middle, _ = expected(fitted(censored), bound)
    assert middle >= bound.value - 0.02
    low_bound = replace(bound, logs=tuple(replace(one, value=0.01) for one in bound.logs))
    _, higher, _ = expected(fitted([*records(trained((4, 0.4))), low_bound]), low_bound)
    assert higher >= log(1.4) - 0.01


def test_a_family_has_a_term_of_its_own_and_its_interval_is_as_wide_as_networks_differ() -> None:
    """A network that takes three times the extra steps of others is near its term; blind to it, others miss it."""
    alike = fitted(records(trained((4, 0.2), (1, 0.3))))["classes"]["low rank"]
    unlike = fitted(records(trained((4, 0.2), (1, 0.3), slower=lambda name: 1 + 2 * (name == "lstm_tiny"))))
    terms = unlike["classes"]["low rank"]["terms"]
    assert terms["lstm networks with sgd"] > 1.1 * terms["conv networks with sgd"]
    widths = [high - low for low, high in (alike["interval"], unlike["classes"]["low rank"]["interval"])]
    assert widths[1] > 2 * widths[0]


def test_extra_steps_grow_with_a_power_of_the_batch_on_however_many_ranks() -> None:
    rows = trained((4, 0.3))
    for ranks, batch in ((8, 4), (2, 16), (2, 64)):
        on = {"world_size": ranks, "batch_size": batch}
        slower = exp(log(1.3) * (ranks * batch / 4) ** 0.3) - 1
        rows += [long_row("ddp", 0, **on), powersgd(4, slower, **on)]
    found = records(rows)
    law = fitted(found)
    assert law["batch"]["exponent"] == pytest.approx(0.3, abs=0.05)
    assert law["batch"]["largest"]["images"] == 128
    assert {one.batch for one in at_usual(found) if one.network == "resnet_tiny"} == {4}
    assert BATCH.finding(rows) == "no method was run with several batches", "of rank 4 with its usual options alone"


def test_extra_steps_fall_with_a_power_of_the_steps_of_training_that_each_class_has_for_itself() -> None:
    rows = trained((4, 0.8), (32, 0.01))
    for model, optimizer in NETWORKS.items():
        on = {"model": model, "optimizer": optimizer}
        signs = {"scheme": "per_tensor", "compressor": "ef_signsgd", "memory": "residual", **on}
        rows += [long_row("ddp", seed, steps=10_000, **on) for seed in (0, 1)]
        rows += [long_row(seed=0, slower=1.0, steps=steps, **signs) for steps in (2000, 10_000)]
        rows.append(powersgd(4, exp(log(1.8) * (2000 / 10_000) ** 0.5) - 1, steps=10_000, **on))
    found = records(rows)
    law = fitted(found)
    assert law["steps"] == {"usual": 2000, "most": 10_000}
    assert law["classes"]["low rank"]["steps_exponent"] == pytest.approx(0.5, abs=0.05)
    few = fitted([one for one in found if one.network != "gpt2_tiny" or one.steps == 2000])
    assert few["classes"]["low rank"]["steps_exponent"] <= law["classes"]["low rank"]["steps_exponent"]
    assert law["classes"]["signs"]["steps_exponent"] == pytest.approx(0.0, abs=0.05)
    assert {one.steps for one in at_usual(found)} == {2000, 10_000}, "each length has a usual batch of its own"
    ends = {n: extra_steps.log_steps(law, "low rank", "", "", 10.0, None, n)[1] for n in (500, 2000, 10_000, 80_000)}
    assert ends[500] == ends[2000], "a short one counts as usual"
    assert ends[10_000] < 0.6 * ends[2000]
    assert ends[80_000] == ends[10_000], "nothing is known of longer ones"
    assert "over 10,000 steps: low rank" in EXTRA_STEPS.finding(rows)


def test_the_picture_and_the_page_are_of_the_records() -> None:
    rows = trained((4, 0.3), (1, 2.5))
    assert "low rank at " in EXTRA_STEPS.finding(rows)
    assert EXTRA_STEPS.finding([]) == "no method was run beside dense training"
    page = long_runs_block([*rows, long_row("ddp", 0, lr=0.5), powersgd(4, 0.1, lr=0.5)])
    assert (
        "low rank (PowerSGD) of rank 4 | resnet_tiny, rate 0.05, 2,000 steps (conv networks with sgd) | 1, 4 images"
        in page
    )
    assert "| 1 - |" in page
    assert "(resnet_tiny, rate 0.5, 2,000 steps)" in page
    assert "over +" in page
    assert "long_quality" in long_runs_block([])


def test_auto_itself_keeps_to_its_budget_in_the_long_runs() -> None:
    """On a slow network, where it compresses, in trainings whose seeds agree."""
    long = long_rows(recorded())
    dense, runs = dense_runs(long), [row for row in long if row.case.scheme == "auto"]
    assert len({setting_of(row) for row in runs} & agreeing(long)) == 3
    for setting in agreeing(long):
        found = [log_steps(dense[place(row)], row) for row in runs if setting_of(row) == setting]
        assert all(one is not None and one.unreached < 0.25 for one in found)
        assert fmean([one.value for one in found if one] or [0.0]) <= log1p(MORE_STEPS["normal"]), setting


def test_more_rounds_of_the_fit_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blind to the LSTM signs are known by bounds alone, which a fit that does not converge would raise for ever."""
    seen = [one for one in records(recorded()) if one.decides and one.network != "lstm_wikitext2_small"]
    found = []
    for rounds in (extra_steps_fit.ROUNDS, 3 * extra_steps_fit.ROUNDS):
        monkeypatch.setattr(extra_steps_fit, "ROUNDS", rounds)
        law = extra_steps_fit._curves(seen)
        found.append([step for own in law["classes"].values() for step in own["log_steps"]])
    assert found[0] == pytest.approx(found[1], abs=0.005)


def test_the_file_is_what_the_recorded_runs_say() -> None:
    text = read(data_dir() / "extra_steps.json", str)
    assert text.strip() == text_of(recorded()).strip()
    law = content(recorded())
    assert ("transformer", "adamw", False) not in {tuple(one.values()) for one in law["trainings"]}, (
        "dense runs of the GPT without clipping end at 66.9, 84.0 and 78.7"
    )
    assert law["steps"] == {"usual": 2000, "most": 10_000}, "30,000 steps are recorded of one network"
    assert {row["compressor"] for row in law["methods"]} >= {"fp16", "dgc", "acpsgd", "powersgd"}
    assert len(dense_runs(long_rows(recorded()))) > 40
