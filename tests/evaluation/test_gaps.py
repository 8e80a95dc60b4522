"""Signs and ranks of gaps in long runs, the noise that they must stand out of, and what is said without rows."""

from dataclasses import replace
from math import log
from typing import Any

import pytest
from evaluation.long_runs import long_row, others, seeds

from experiments.common.evaluation.gaps import (
    CEILING,
    UNCONVERGED,
    Gap,
    Task,
    judged_gaps,
    judged_order,
    no_row,
    tasks,
    there_is,
    trained,
    usual,
)
from experiments.common.evaluation.noise import t95
from ssfx.core.rows import Row

PRINTED = {"good": 0.99, "bad": 0.90}
CLAIMS = {"good": "a", "bad": "b"}
NAMES = {"ddp": "ddp", "ssfusion_oi": "good", "oktopk": "bad"}


def task(**qualities: float) -> Task:
    """Return a task whose dense training ends at 0.5, and whose other methods end as given."""
    schemes = {name: scheme for scheme, name in NAMES.items()}
    rows = others()
    for name, quality in {"ddp": 0.5, **qualities}.items():
        given = {} if name == "ddp" else {"compressor": "dgc", "density": 0.01, "memory": "residual"}
        rows += seeds(schemes[name], quality, **given)
    (found,) = tasks(rows, lambda row: NAMES.get(row.case.scheme, ""))
    return found


def outcomes(printed: dict[str, float] = PRINTED, **qualities: float) -> dict[str, str]:
    """Return the outcomes of good and bad, whose gaps the paper prints as 1 and 10 %."""
    return {one.claim: one.outcome for one in judged_gaps([task(**qualities)], CLAIMS, printed)}


def test_sign_and_rank_both_count() -> None:
    assert outcomes(good=0.45, bad=0.30) == {"a": "agrees", "b": "agrees"}
    assert outcomes(good=0.30, bad=0.45) == {"a": "partly", "b": "partly"}  # below, in the other order
    assert outcomes(good=0.60, bad=0.70) == {"a": "disagrees", "b": "disagrees"}
    undecided = judged_gaps([task(good=0.4995, bad=0.5)], CLAIMS, PRINTED)
    assert {one.outcome for one in undecided} == {"not comparable"}
    assert all("noise of seeds exceeds the gap" in one.reason for one in undecided)


def test_without_another_method_the_sign_is_partly_and_a_single_seed_says_nothing() -> None:
    assert outcomes(bad=0.3) == {"a": "not attempted", "b": "partly"}
    assert outcomes(bad=0.7) == {"a": "not attempted", "b": "disagrees"}
    alone = [*others(), *seeds("ddp", 0.5), long_row("oktopk", 0.3)]
    found = tasks(alone, lambda row: NAMES.get(row.case.scheme, ""))
    assert {one.claim: one.outcome for one in judged_gaps(found, CLAIMS, PRINTED)} == {
        "a": "not attempted",
        "b": "not comparable",  # one seed was run, and is not enough
    }


def test_a_method_that_sent_far_more_than_it_was_set_to_is_not_compared() -> None:
    """A scheme that leaves small tensors dense sends half of a small network: the paper has no such runs."""
    rows = [*others(), *seeds("ddp", 0.5), *seeds("oktopk", 0.3, **SPARSE), *seeds("ssfusion_oi", 0.45, **SPARSE)]
    for row in rows:
        row.metrics["achieved_density"] = 0.53 if row.case.scheme == "ssfusion_oi" else row.case.density
    found = tasks(rows, lambda row: NAMES.get(row.case.scheme, ""))
    judged = judged_gaps(found, CLAIMS, PRINTED)
    assert {one.claim: one.outcome for one in judged} == {"a": "not comparable", "b": "partly"}
    assert "good sent far more of our small network than was set" in judged[-1].reason
    few = judged_gaps(tasks(rows[:-1], lambda row: NAMES.get(row.case.scheme, "")), CLAIMS, PRINTED)
    assert few[-1].reason == judged[-1].reason  # whatever the number of seeds


def test_equal_quality_at_the_end_is_neither_held_nor_refuted_by_runs_that_stop_early() -> None:
    tied = {"good": 1.0, "bad": 1.0}
    for bad in (0.5, 0.3):
        found = judged_gaps([task(good=0.5, bad=bad)], CLAIMS, tied)
        assert {one.outcome for one in found} == {"not comparable"}
        assert all(UNCONVERGED in one.reason and "gap " in one.ours for one in found)
    even = judged_order("x", [("a over b", Gap(-0.1, 0.02), "equal"), ("c over d", Gap(0.1, 0.02), "above")], "")
    assert (even.outcome, UNCONVERGED in even.reason) == ("not comparable", True)


def test_noise_is_pooled_over_the_methods_that_trained_and_needs_several() -> None:
    found = task(good=0.5)
    apart = log(1 + 0.005) - log(1 - 0.005)
    assert found.noise == pytest.approx(apart * (4 / 7) ** 0.5, rel=1e-3)
    assert found.freedom == 7  # six others, dense training and good, two seeds each, and what the second seed does
    rows = [*others(), *seeds("ddp", 0.5), long_row("signsgd", 0.1), long_row("signsgd", 0.2, 1)]
    (diverged,), (without,) = (tasks(some, lambda row: row.case.scheme) for some in (rows, rows[:-2]))
    assert diverged.noise == without.noise is not None
    (few,) = tasks(seeds("ddp", 0.5), lambda row: row.case.scheme)
    assert few.noise is None
    assert few.gap("ddp", "ddp").word == "unknown"


SPARSE: dict[str, Any] = {"compressor": "dgc", "density": 0.01, "memory": "residual"}
LUCK = (0.85, 1.07, 1.0)
"""What a seed does to every method of a network."""


def by_seed(scheme: str, quality: float, *which: int, **given: Any) -> list[Row]:
    """Return runs of which each seed is lucky or not, whatever the method."""
    return [long_row(scheme, quality * LUCK[seed], seed, **given) for seed in which]


def test_a_method_is_compared_with_dense_training_of_its_own_seeds() -> None:
    model = "gpt2_small_wikitext2"
    rows = [
        *by_seed("ddp", 78.7, 0, 1, 2, model=model),
        *by_seed("hipress", 79.4, 0, model=model, **SPARSE),
        *by_seed("oktopk", 90.0, 0, 2, model=model, **SPARSE),
        *by_seed("spardl", 78.0, 1, model=model, **SPARSE),
    ]
    (found,) = tasks(rows, lambda row: row.case.scheme)
    assert found.gap("hipress", "ddp").mean == pytest.approx(log(78.7 / 79.4), abs=0.011)  # of all seeds it was +0.14
    assert found.gap("oktopk", "ddp").mean == pytest.approx(log(78.7 / 90), abs=0.011)
    assert found.shared("oktopk", "ddp") == [0, 2]
    assert [found.knows("oktopk", "ddp"), found.knows("hipress", "ddp"), found.knows("oktopk", "spardl")] == [
        True,
        False,
        False,
    ]
    assert found.over("hipress", "spardl") == []
    assert str(found.gap("hipress", "spardl")) == "no seed in common"


def test_what_a_seed_does_to_every_method_is_no_noise_of_a_pair() -> None:
    lucky = [
        row
        for density in (0.5, 0.4, 0.3, 0.2, 0.15, 0.1)
        for row in by_seed("per_tensor", 0.5, 0, 1, compressor="topk", density=density, memory="residual")
    ]
    rows = [*by_seed("ddp", 0.5, 0, 1, 2), *by_seed("oktopk", 0.46, 0, 1, **SPARSE), *lucky]
    (found,) = tasks(rows, lambda row: row.case.scheme)
    assert (found.noise or 1.0) < 0.01  # of two seeds 0.23 apart
    assert found.gap("oktopk", "ddp").word == "below"


def test_auto_is_no_part_of_the_noise_nor_of_the_words() -> None:
    def name(row: Row) -> str:
        return row.case.scheme

    rows = [*others(), *seeds("ddp", 0.5)]
    auto = [long_row("auto", quality, seed) for seed, quality in enumerate((0.3, 0.5, 0.6))]
    (without,), (with_auto,) = tasks(rows, name), tasks([*rows, *auto], name)
    assert (with_auto.noise, with_auto.words) == (without.noise, without.words)


def test_runs_by_another_optimizer_are_no_evidence_of_a_paper() -> None:
    rows = [*seeds("ddp", 0.5), *seeds("acpsgd", 0.4), *seeds("ddp", 0.5, optimizer="adamw")]
    (found,) = tasks(rows, lambda row: row.case.scheme)
    assert {row.case.optimizer for own in found.methods.values() for row in own} == {"sgd"}


def test_long_runs_on_an_unusual_number_of_ranks_are_no_evidence_of_a_paper_but_across_ranks() -> None:
    rows = [*seeds("ddp", 0.5), *seeds("topk", 0.4), *seeds("ddp", 0.6, world_size=16)]
    (one,) = tasks(rows, lambda row: row.case.scheme)
    assert [row.case.world_size for row in one.methods["ddp"]] == [4, 4]
    (across,) = tasks(rows, lambda row: row.case.scheme, across_ranks=True)
    assert len(across.methods["ddp"]) == 4


def test_perplexity_is_better_where_it_is_lower() -> None:
    model = "lstm_wikitext2_small"
    rows = [*others(model, 75.0), *seeds("ddp", 75.0, model=model), *seeds("oktopk", 90.0, model=model)]
    (found,) = tasks(rows, lambda row: row.case.scheme)
    gap = found.gap("oktopk", "ddp")
    assert gap.word == "below"
    assert gap.mean == pytest.approx(log(75 / 90))


@pytest.mark.parametrize(
    ("gap", "wanted", "holds"),
    [
        (Gap(0.1, 0.02), "above", True),
        (Gap(0.1, 0.02), "below", False),
        (Gap(0.01, 0.02), "above", None),
        (Gap(0.01, 0.02), "clearly above", False),
        (Gap(0.01, 0.2), "clearly above", None),
        (Gap(0.1, 0.02), "clearly above", True),
        (Gap(0.01, 0.02), "equal", None),
        (Gap(0.1, 0.02), "equal", None),
        (Gap(0.1, 0.02), "not below", True),
        (Gap(0.0, 0.02), "not below", True),
        (Gap(-0.1, 0.02), "not below", False),
        (Gap(0.1, None), "above", None),
    ],
)
def test_a_gap_holds_is_refuted_or_is_left_open(gap: Gap, wanted: str, holds: bool | None) -> None:
    assert gap.holds(wanted) is holds


def test_an_order_needs_all_of_its_pairs() -> None:
    yes, no, unclear = Gap(0.1, 0.02), Gap(-0.1, 0.02), Gap(0.01, 0.02)

    def outcome(*gaps: Gap, missing: tuple[str, ...] = ()) -> str:
        return judged_order("x", [("a over b", gap, "above") for gap in gaps], "2,000 steps", missing).outcome

    assert [outcome(yes, yes), outcome(yes, unclear), outcome(yes, no), outcome(unclear)] == [
        "agrees",
        "partly",
        "disagrees",
        "not comparable",
    ]
    assert outcome(yes, missing=("OMGS",)) == "not comparable"
    assert outcome(no, missing=("OMGS",)) == "disagrees"
    said = judged_order("x", [("a over b", yes, "above")], "2,000 steps", ("OMGS",))
    assert "no long row of OMGS" in said.reason
    assert said.ours == "a over b +10.5 % (+8.3 to +12.7)"


def test_what_has_no_row_names_it_and_the_command() -> None:
    one = no_row("x", ["MiCRO"])
    assert one.outcome == "not attempted"
    assert one.reason.startswith("no long row of MiCRO yet: ssfx run experiment=long_quality")


def test_one_seed_is_not_called_no_row() -> None:
    rows = [
        *seeds("ddp", 0.5),
        long_row("oktopk", 0.3),
        long_row("ssfusion_oi", 0.4, 5),
        long_row("ssfusion_oi", 0.4, 6),
    ]
    every = tasks(rows, lambda row: NAMES.get(row.case.scheme, ""))
    said = {one.claim: one.reason.partition(": ssfx")[0] for one in judged_gaps(every, CLAIMS, PRINTED)}
    assert said == {
        "a": "good trained on other seeds than what it is compared with",
        "b": "one seed of bad, two are needed",
    }
    alone = tasks([*seeds("oktopk", 0.3), long_row("ddp", 0.5)], lambda row: NAMES.get(row.case.scheme, ""))
    (dense, *_) = judged_gaps(alone, {"bad": "b"}, PRINTED)
    assert (dense.outcome, dense.reason) == ("not comparable", "one seed of ddp, two are needed")
    several = no_row("x", {"MiCRO": "no long row", "OMGS": "one seed", "Cupcake": "one seed"})
    assert several.reason == "no long row of MiCRO yet; one seed of OMGS, Cupcake, two are needed"
    order = judged_order("x", [("a over b", Gap(0.1, 0.02), "above")], "2,000 steps", {"OMGS": "one seed"})
    assert order.reason.endswith("Not decided: one seed of OMGS, two are needed.")
    assert "noise of seeds is unknown" in judged_order("x", [("a over b", Gap(0.1, None), "above")], "2").reason


def test_tasks_are_told_apart_and_the_longest_comes_first() -> None:
    rows = [*seeds("ddp", 0.5, steps=1000), *seeds("ddp", 0.5), *seeds("ddp", 0.5, model="resnet20_cifar10")]
    found = tasks(rows, lambda row: row.case.scheme)
    assert [(one.model, len(one.methods["ddp"])) for one in found] == [
        ("resnet20_cifar10", 2),
        ("vgg_small_cifar10", 2),
        ("vgg_small_cifar10", 2),
    ]
    assert trained(rows) == "1,000 to 2,000 steps, 2 seeds"


def test_the_quantile_of_students_t() -> None:
    assert [t95(freedom) for freedom in (6, 10, 20, 1000)] == pytest.approx([2.447, 2.228, 2.086, 1.962], abs=0.005)


def test_a_run_by_the_papers_rule_stands_for_its_scheme_where_there_is_one() -> None:
    sparse: dict[str, Any] = {"compressor": "dgc", "density": 0.01, "memory": "residual"}
    best = seeds("ssfusion_oi", 0.5, **sparse)
    ruled = seeds("ssfusion_oi", 0.4, scheme_options={"rule": "paper"}, **sparse)
    (own,) = tasks([*best, *ruled], lambda row: row.case.scheme if usual(row) else "")
    assert [row.run_id for row in own.methods["ssfusion_oi"]] == [row.run_id for row in ruled]
    (other,) = tasks(best, lambda row: row.case.scheme if usual(row) else "")
    assert len(other.methods["ssfusion_oi"]) == len(best)


def test_a_task_that_every_method_ends_at_the_best_of_compares_none() -> None:
    found = task(good=1.1, bad=1.1)
    assert not found.at_ceiling  # dense training ends at 0.5
    best = replace(found, methods={name: rows for name, rows in found.methods.items() if name != "ddp"})
    assert best.at_ceiling
    assert not best.knows("good", "bad")
    assert there_is([best], "good") == CEILING
    (verdict,) = judged_gaps([best], {"good": "a"}, PRINTED, "bad")
    assert verdict.outcome == "not comparable"
    assert "can do no better" in verdict.reason
