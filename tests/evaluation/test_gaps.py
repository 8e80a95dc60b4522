"""Signs and ranks of gaps in long runs, the noise that they must stand out of, and what is said without rows."""

from math import log

import pytest
from evaluation.long_runs import long_row, others, seeds

from experiments.common.evaluation.gaps import Gap, Task, judged_gaps, judged_order, no_row, t95, tasks, trained
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
    assert {one.outcome for one in judged_gaps(found, CLAIMS, PRINTED)} == {"not attempted"}


def test_a_gap_that_is_printed_as_even_is_held_to_the_noise_and_ties_to_each_other() -> None:
    tied = {"good": 1.0, "bad": 1.0}
    assert outcomes(tied, good=0.5, bad=0.5) == {"a": "agrees", "b": "agrees"}
    assert outcomes(tied, good=0.5, bad=0.3) == {"a": "partly", "b": "disagrees"}


def test_noise_is_pooled_over_the_methods_that_trained_and_needs_several() -> None:
    found = task(good=0.5)
    apart = log(1 + 0.005) - log(1 - 0.005)
    assert found.noise == pytest.approx(apart / 2**0.5, rel=1e-3)
    assert found.freedom == 8  # six others, dense training and good, two seeds each
    rows = [*others(), *seeds("ddp", 0.5), long_row("signsgd", 0.1), long_row("signsgd", 0.2, 1)]
    (diverged,) = tasks(rows, lambda row: row.case.scheme)
    assert diverged.noise == pytest.approx(found.noise)
    (few,) = tasks(seeds("ddp", 0.5), lambda row: row.case.scheme)
    assert few.noise is None
    assert few.gap("ddp", "ddp").word == "unknown"


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
        (Gap(0.1, 0.02), "above", True), (Gap(0.1, 0.02), "below", False), (Gap(0.01, 0.02), "above", None),
        (Gap(0.01, 0.02), "clearly above", False), (Gap(0.01, 0.2), "clearly above", None),
        (Gap(0.1, 0.02), "clearly above", True), (Gap(0.01, 0.02), "equal", True), (Gap(0.01, 0.2), "equal", None),
        (Gap(0.1, 0.02), "equal", False), (Gap(0.1, 0.02), "not below", True), (Gap(0.0, 0.02), "not below", True),
        (Gap(-0.1, 0.02), "not below", False), (Gap(0.1, None), "above", None),
    ],
)  # fmt: skip
def test_a_gap_holds_is_refuted_or_is_left_open(gap: Gap, wanted: str, holds: bool | None) -> None:
    assert gap.holds(wanted) is holds


def test_an_order_needs_all_of_its_pairs() -> None:
    yes, no, unclear = Gap(0.1, 0.02), Gap(-0.1, 0.02), Gap(0.01, 0.02)

    def outcome(*gaps: Gap, missing: tuple[str, ...] = ()) -> str:
        return judged_order("x", [("a over b", gap, "above") for gap in gaps], "2,000 steps", missing).outcome

    assert [outcome(yes, yes), outcome(yes, unclear), outcome(yes, no), outcome(unclear)] == [
        "agrees", "partly", "disagrees", "not comparable",
    ]  # fmt: skip
    assert outcome(yes, missing=("OMGS",)) == "not comparable"
    assert outcome(no, missing=("OMGS",)) == "disagrees"
    said = judged_order("x", [("a over b", yes, "above")], "2,000 steps", ("OMGS",))
    assert "no long row of OMGS" in said.reason
    assert said.ours == "a over b +10.5 % (+8.3 to +12.7)"


def test_what_has_no_row_names_it_and_the_command() -> None:
    one = no_row("x", ["MiCRO"])
    assert one.outcome == "not attempted"
    assert one.reason.startswith("no long row of MiCRO yet: ssfx run experiment=long_quality")


def test_tasks_are_told_apart_and_the_longest_comes_first() -> None:
    rows = [*seeds("ddp", 0.5, steps=1000), *seeds("ddp", 0.5), *seeds("ddp", 0.5, model="resnet20_cifar10")]
    found = tasks(rows, lambda row: row.case.scheme)
    assert [(one.model, len(one.methods["ddp"])) for one in found] == [
        ("resnet20_cifar10", 2), ("vgg_small_cifar10", 2), ("vgg_small_cifar10", 2),
    ]  # fmt: skip
    assert trained(rows) == "1,000 to 2,000 steps, 2 seeds"


def test_the_quantile_of_students_t() -> None:
    assert [t95(freedom) for freedom in (6, 10, 20, 1000)] == pytest.approx([2.447, 2.228, 2.086, 1.962], abs=0.005)
