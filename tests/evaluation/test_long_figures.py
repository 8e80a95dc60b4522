"""Figures of quality from long runs: every verdict follows the rows, what has none says so, short runs do not count."""

from csv import DictReader
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evaluation.long_runs import long_row, others, seeds
from evaluation.test_simulated_figures import simulated

from experiments.common.evaluation.gaps import UNCONVERGED, tasks
from experiments.common.evaluation.judging import absent
from experiments.common.evaluation.quality_panels import Panel
from experiments.common.figures.discovery import discover
from experiments.common.figures.figure import Figure
from experiments.micro.figures.runs import judged_times
from experiments.micro.figures.runs import runs as micro_runs
from ssfx.core.rows import Row

FIGURES = discover()
TEXT = "lstm_wikitext2_small"
DGC: dict[str, Any] = {"compressor": "dgc", "density": 0.01, "memory": "residual"}
BLOCKS: dict[str, Any] = {"compressor": "block_topk", "density": 0.03125, "memory": "residual"}
SIGNS: dict[str, Any] = {"compressor": "ef_signsgd", "memory": "residual"}
LOW_RANK: dict[str, Any] = {"compressor": "acpsgd", "memory": "residual"}
QUALITY_FIGURES = (
    "ssfusion.fig12",
    "ssfusion.fig5b",
    "ssfusion.fig2.quality",
    "acpsgd.fig6",
    "acpsgd.fig7",
    "mergecomp.table4",
    "micro.fig2",
    "micro.fig4",
    "micro.fig5",
    "micro.fig7",
    "micro.fig8",
)


def judged(name: str, rows: list[Row]) -> dict[str, tuple[str, str]]:
    """Return outcome and our words by claim, of nominal times where there are several verdicts."""
    figure = FIGURES[name]
    return {
        one.claim.removeprefix(f"{name.partition('.')[0]}."): (one.outcome, f"{one.ours} {one.reason}")
        for one in figure.judge(figure.select(rows))
        if one.calibration in ("", "nominal")
    }


def outcomes(name: str, rows: list[Row]) -> dict[str, str]:
    return {claim: outcome for claim, (outcome, _) in judged(name, rows).items()}


@pytest.mark.parametrize("name", QUALITY_FIGURES)
def test_a_short_run_counts_for_nothing(name: str) -> None:
    figure: Figure = FIGURES[name]
    short = seeds("ddp", 0.5, experiment="time_to_quality", steps=100)
    assert figure.select(short) == []
    assert figure.command.startswith("ssfx run experiment=long_quality")


def test_fig_12_names_what_has_no_long_row_and_follows_the_rest(tmp_path: Path) -> None:
    rivals = {"ssfusion_oi": 0.489, "oktopk": 0.40, "spardl": 0.44, "omgs": 0.43, "cupcake": 0.435}

    def rows(**changed: float) -> list[Row]:
        found = [*others(), *seeds("ddp", 0.5)]
        for scheme, quality in {**rivals, **changed}.items():
            found += seeds(scheme, quality, **DGC)
        return found

    found = outcomes("ssfusion.fig12", rows())
    assert found["exp2.vgg19.order"] == found["exp2.vgg19.ssfusion-oi"] == found["exp2.vgg19.oktopk"] == "agrees"
    assert found["exp2.vgg19.dense"] == "not comparable"
    assert found["headline.accuracy"] == "not comparable"
    assert {found[f"exp2.bert.{one}"] for one in ("order", "dense", "spardl")} == {"not attempted"}
    beaten = outcomes("ssfusion.fig12", rows(omgs=0.6, ssfusion_oi=0.42))
    assert beaten["exp2.vgg19.order"] == "disagrees"
    assert beaten["exp2.vgg19.omgs"] == "disagrees"
    without = [row for row in rows() if row.case.scheme != "cupcake"]
    assert "no long row of Cupcake" in judged("ssfusion.fig12", without)["exp2.vgg19.order"][1]
    FIGURES["ssfusion.fig12"].draw(FIGURES["ssfusion.fig12"].select(without), tmp_path)
    table = (tmp_path / "ssfusion.fig12.csv").read_text()
    assert "(b) small VGG on CIFAR-10, for the paper's VGG-19 on CIFAR-100\",cupcake,no long row" in table
    assert "(d) BERT of 2 layers on generated questions, for the paper's BERT on SQuAD\",ddp,no long row" in table


def test_a_method_that_sent_far_more_than_it_was_asked_to_says_so() -> None:
    rows = [*others(), *seeds("ddp", 0.5), *seeds("oktopk", 0.4, **DGC)]
    for scheme, density in (("ssfusion_oi", 1.0), ("hipress", 0.54), ("spardl", 0.01)):
        rows += [replace(one, metrics=one.metrics | {"achieved_density": density}) for one in seeds(scheme, 0.5, **DGC)]
    (task,) = tasks(rows, lambda row: row.case.scheme)
    panel = Panel("", task, {}, "ddp")
    marks = {name: panel.mark(name) for name in ("ddp", "oktopk", "ssfusion_oi", "hipress", "spardl", "omgs")}
    assert {name: mark for name, mark in marks.items() if mark} == {
        "ssfusion_oi": " (sent dense)",
        "hipress": " (sent 54 %)",
    }


@pytest.mark.parametrize(("sent_bytes", "mark"), [(8.0, " (sent dense)"), (1.0, "")])
def test_auto_is_asked_for_no_density_and_its_bytes_tell_what_it_sent(sent_bytes: float, mark: str) -> None:
    rows = [
        replace(one, metrics=one.metrics | {"sent_bytes": sent})
        for scheme, sent in (("ddp", 8.0), ("auto", sent_bytes))
        for one in seeds(scheme, 0.5)
    ]
    (task,) = tasks(rows, lambda row: row.case.scheme)
    panel = Panel("", task, {}, "ddp")
    assert (panel.mark("ddp"), panel.mark("auto")) == ("", mark)


GPT2 = "gpt2_small_wikitext2"


def of_seeds(
    scheme: str, finals: dict[int, float], sent: float = 0.01, sent_bytes: float = 1e5, **given: Any
) -> list[Row]:
    """Return runs of a small language model that end at these perplexities by seed, and what they sent."""
    rows = [long_row(scheme, value, seed, **{"model": GPT2, **given}) for seed, value in finals.items()]
    measured = {"achieved_density": sent, "contributed_bytes": sent_bytes}
    return [replace(row, metrics={**row.metrics, "perplexity": finals[row.case.seed], **measured}) for row in rows]


DENSE_BY_SEED = {0: 66.9, 1: 84.0, 2: 78.7}


def test_fig_12_holds_a_method_against_dense_training_of_its_seed(tmp_path: Path) -> None:
    figure = FIGURES["ssfusion.fig12"]
    rows = figure.select(
        [
            *of_seeds("ddp", DENSE_BY_SEED, 1.0, model=TEXT),
            *of_seeds("hipress", {0: 67.4}, 0.54, model=TEXT, **DGC),
            *of_seeds("ssfusion_oi", {0: 68.5, 1: 83.4}, model=TEXT, **DGC),
            *of_seeds("oktopk", {7: 107.0}, model=TEXT, **DGC),
        ]
    )
    assert figure.finding(rows) == (
        "in brackets dense training of the same seeds: lstm_wikitext2_small (perplexity): ddp 78.7, "
        "hipress 67.4 (66.9; sent 54 %), oktopk 107 (no dense run of its seed), ssfusion_oi 76 (75.5)"
    )
    figure.draw(rows, tmp_path)
    table = {
        line["method"]: line
        for line in DictReader((tmp_path / "ssfusion.fig12.csv").read_text().splitlines())
        if line["model"] == TEXT
    }
    assert float(table["hipress"]["over_baseline"]) == pytest.approx(66.9 / 67.4, rel=1e-3)
    assert [table["hipress"][name] for name in ("baseline", "seeds_of_both", "sent")] == ["66.9", "1", "54 %"]
    assert float(table["ssfusion_oi"]["over_baseline"]) == pytest.approx((66.9 / 68.5 + 84 / 83.4) / 2, rel=1e-3)
    assert table["ddp"]["over_baseline"] == "1"
    assert table["oktopk"]["over_baseline"] == ""


def test_curves_are_of_the_seeds_that_all_methods_have() -> None:
    rows = [
        *of_seeds("ddp", DENSE_BY_SEED),
        *of_seeds("hipress", {0: 67.4}, **DGC),
        *of_seeds("oktopk", {0: 90}, **DGC),
    ]
    (task,) = tasks(rows, lambda row: row.case.scheme)
    colours = dict.fromkeys(("ddp", "hipress", "oktopk", "omgs"), "black")
    assert Panel("", task, colours, "ddp").common == [0]
    (task,) = tasks([*rows, *of_seeds("omgs", {2: 80}, **DGC)], lambda row: row.case.scheme)
    assert Panel("", task, colours, "ddp").common == [0, 1, 2]
    assert Panel("", None, colours, "ddp").common == []


def test_methods_of_one_run_are_said_to_be_one() -> None:
    losses = {"ddp": 2.0, "omgs": 3.0, "cupcake": 3.0, "fused_all": 3.1}
    finals = {"ddp": DENSE_BY_SEED, "omgs": {0: 87.5, 1: 90.0}, "cupcake": {0: 87.5}, "fused_all": {0: 87.5}}
    rows = [
        replace(row, curve={"step": [2000.0], "loss": [losses[scheme]]})
        for scheme in losses
        for row in of_seeds(scheme, finals[scheme], **({} if scheme == "ddp" else DGC))
    ]
    assert FIGURES["ssfusion.fig12"].finding(rows).endswith("; omgs and cupcake of seed 0 are one run")


def test_one_seed_of_a_network_or_a_method_is_not_called_no_row() -> None:
    resnet = "resnet20_cifar10"
    rows = [
        long_row("ddp", 0.5, model=resnet),
        long_row("ssfusion_oi", 0.5, model=resnet, **DGC),
        *others(),
        *seeds("ddp", 0.5),
        long_row("spardl", 0.4, **DGC),
    ]
    said = {claim: words for claim, (_, words) in judged("ssfusion.fig12", rows).items()}
    assert "one seed of SSFusion on a small ResNet, two are needed" in said["exp2.resnet152.ssfusion-oi"]
    assert "one seed of dense training on a small ResNet, two are needed" in said["exp2.resnet152.dense"]
    assert "no long row of OMGS on a small ResNet yet" in said["exp2.resnet152.omgs"]
    assert "one seed of SparDL, two are needed" in said["exp2.vgg19.spardl"]
    assert "no long row of SSFusion yet" in said["exp2.vgg19.order"]
    assert said["exp2.vgg19.dense"].startswith("top1 0.5")


def test_fig_5b_says_how_much_less_was_sent() -> None:
    rows = [
        *of_seeds("ddp", DENSE_BY_SEED),
        *of_seeds("fused_all", {0: 87.5}, sent_bytes=117_276, **DGC),
        *of_seeds("ssfusion_naive", {0: 68.7}, sent_bytes=2_440_000, **DGC),
    ]
    assert FIGURES["ssfusion.fig5b"].finding(rows) == (
        "gpt2_small_wikitext2: selective over multi-tensor +27.4 %, noise unknown (selective sent 1.85x, multi-tensor "
        "sent 38.5x fewer bytes than the gradient has)"
    )


RIVALS = {"ssfusion_oi": 0.489, "oktopk": 0.40, "spardl": 0.44, "omgs": 0.43, "cupcake": 0.435}
VIRTUAL: dict[str, Any] = {"virtual": "cpu", "calibration": "measured:0a1b2c3d"}


@pytest.mark.parametrize(
    ("model", "paper", "dense"),
    [("resnet20_cifar10", "resnet152", 0.5), ("vgg_small_cifar10", "vgg19", 0.5), (TEXT, "lstm", 75.0)],
)
def test_runs_of_virtual_ranks_decide_fig_12_as_those_of_real_ones_do(model: str, paper: str, dense: float) -> None:
    def rows(**given: Any) -> list[Row]:
        found = [*others(model, dense), *seeds("ddp", dense, model=model)]
        for scheme, quality in RIVALS.items():
            final = dense * 0.5 / quality if model == TEXT else quality
            found += seeds(scheme, final, model=model, **DGC, **(given if scheme != "oktopk" else {}))
        return found

    virtual = outcomes("ssfusion.fig12", rows(**VIRTUAL))
    assert virtual == outcomes("ssfusion.fig12", rows())
    assert virtual == outcomes("ssfusion.fig12", [*rows(), *rows(**VIRTUAL)])  # the same run twice counts once
    own = [f"exp2.{paper}.{one}" for one in ("order", "ssfusion-oi", "oktopk", "spardl", "omgs", "cupcake")]
    assert {virtual[one] for one in own} <= {"agrees", "partly", "disagrees"}
    assert virtual[f"exp2.{paper}.order"] == "agrees"


def test_a_bert_on_questions_is_judged_by_its_own_experiment_and_density(tmp_path: Path) -> None:
    model = "bert_mini"
    sparse: dict[str, Any] = {**DGC, "density": 0.05}
    own: dict[str, Any] = {"experiment": "question_quality", "steps": 600}
    rivals = {"ssfusion_oi": 0.88, "oktopk": 0.77, "spardl": 0.80, "omgs": 0.83, "cupcake": 0.81}
    rows = [*others(model, 0.8, **own), *seeds("ddp", 0.9, model=model, **own)]
    for scheme, quality in rivals.items():
        rows += seeds(scheme, quality, model=model, **own, **sparse)
    found = judged("ssfusion.fig12", rows)
    assert {found[f"exp2.bert.{one}"][0] for one in ("order", "ssfusion-oi", "oktopk", "omgs")} == {"agrees"}
    assert "600 steps, 2 seeds in place of BERT on SQuAD" in found["exp2.bert.omgs"][1]
    figure = FIGURES["ssfusion.fig12"]
    times = simulated("convergence_times", "workload=bert_base_squad", "scheme=ddp,omgs")
    figure.draw(figure.select([*rows, *times]), tmp_path)
    lines = [line for line in (tmp_path / "ssfusion.fig12.csv").read_text().splitlines() if ",omgs," in line]
    (omgs,) = (line.split(",") for line in lines if model in line)
    assert float(omgs[-1]) == pytest.approx(times[-1].metrics["iteration_s"], rel=1e-4)


def test_fig_12_says_which_runs_are_missing_and_how_long_they_take() -> None:
    figure = FIGURES["ssfusion.fig12"]
    said = figure.lacks([*seeds("ddp", 0.5), *seeds("omgs", 0.4, count=1, **DGC)])
    vgg = next(line for line in said if line.startswith("(b)"))
    assert (
        ": 17 runs, about 51 minutes on two cores: ssfx run experiment=long_quality workload=vgg_small_cifar10 " in vgg
    )
    assert "scheme=hipress,oktopk,spardl,espresso,omgs,cupcake,per_tensor,fused_all,ssfusion_oi density=0.01" in vgg
    assert len(said) == 5
    assert said[-1].endswith("ssfx run experiment=convergence_times")


def test_fig_2_follows_the_degree_on_a_network_of_enough_tensors() -> None:
    def rows(twenty: float, every: float, model: str = "resnet20_cifar10") -> list[Row]:
        given = {"model": model, **DGC}
        return [
            *others(model),
            *seeds("per_tensor", 0.5, **given),
            *seeds("fused_all", twenty, scheme_options={"fusion_degree": 20}, **given),
            *seeds("fused_all", every, **given),
        ]

    falls = outcomes("ssfusion.fig2.quality", rows(0.45, 0.40))
    assert (falls["fig2.a.fd20.acc"], falls["fig2.a.fd100.acc"], falls["fig2.mono.acc"]) == ("agrees",) * 3
    assert falls["fig2.b.fd100.f1"] == "not attempted"
    rises = outcomes("ssfusion.fig2.quality", rows(0.55, 0.60))
    assert (rises["fig2.a.fd20.acc"], rises["fig2.a.fd100.acc"], rises["fig2.mono.acc"]) == ("disagrees",) * 3
    flat = outcomes("ssfusion.fig2.quality", rows(0.5, 0.5))
    assert flat["fig2.mono.acc"] == "partly"  # not rising holds, below tensors one by one is open
    few = judged("ssfusion.fig2.quality", rows(0.45, 0.40, "vgg_small_cifar10"))
    assert {few[claim][0] for claim in ("fig2.a.fd20.acc", "fig2.a.fd100.acc")} == {"not comparable"}
    assert "has 12 tensors" in few["fig2.a.fd20.acc"][1]
    assert few["fig2.mono.acc"][0] == "not attempted"


def test_fig_5b_follows_its_gains() -> None:
    def rows(model: str, selective: float, joint: float) -> list[Row]:
        dense = 75.0 if model == TEXT else 0.5
        given = {"model": model, **DGC}
        return [
            *others(model, dense),
            *seeds("ddp", dense, model=model),
            *seeds("per_tensor", dense, **given),
            *seeds("fused_all", joint, **given),
            *seeds("ssfusion_naive", selective, **given),
        ]

    good = outcomes("ssfusion.fig5b", [*rows("vgg_small_cifar10", 0.5, 0.4), *rows(TEXT, 75.0, 90.0)])
    assert (good["fig5.resnet152.gain"], good["fig5.gpt2large.gain"]) == ("partly", "partly")  # a sign, nothing to rank
    assert (good["fig5.acc_parity"], good["fig5.bertlarge.gain"]) == ("not comparable", "not attempted")
    bad = outcomes("ssfusion.fig5b", [*rows("vgg_small_cifar10", 0.4, 0.5), *rows(TEXT, 90.0, 75.0)])
    assert set(bad.values()) == {"disagrees", "not attempted", "not comparable"}


def test_acp_sgd_follows_its_gaps() -> None:
    def rows(quality: float, without: float) -> list[Row]:
        slow: dict[str, Any] = {"curve": {"top1": [0.1 * quality, 0.2, 0.3, quality]}}
        given = LOW_RANK | {"scheme": "acpsgd"}
        return [
            *others(),
            *seeds("ddp", 0.5),
            *seeds("powersgd", 0.5, compressor="powersgd", memory="residual"),
            *seeds(quality=quality, **given, **slow),
            *seeds(quality=without, **{**given, "memory": "none"}),
            *seeds(quality=without, **{**given, "compressor": "acpsgd(warm_start=False)"}),
        ]

    far = judged("acpsgd.fig6", rows(0.3, 0.3))
    assert (far["fig6.vgg16"][0], far["fig6.parity"][0]) == ("not comparable", "not comparable")
    assert UNCONVERGED in far["fig6.vgg16"][1]
    assert UNCONVERGED in far["fig6.parity"][1]
    assert {claim: outcomes("acpsgd.fig7", rows(0.5, 0.3))[claim] for claim in ("fig7.ef", "fig7.reuse")} == {
        "fig7.ef": "agrees",
        "fig7.reuse": "agrees",
    }
    assert set(outcomes("acpsgd.fig7", rows(0.5, 0.5)).values()) == {"disagrees"}  # nothing is missed
    assert set(outcomes("acpsgd.fig7", seeds("ddp", 0.5)).values()) == {"not attempted"}


def test_merging_keeps_accuracy_or_not() -> None:
    def rows(merged: float) -> list[Row]:
        found = [*others(), *seeds("ddp", 0.5)]
        for compressor in (DGC, SIGNS):
            found += [*seeds("per_tensor", 0.5, **compressor), *seeds("mergecomp", merged, **compressor)]
        return found

    lost = outcomes("mergecomp.table4", rows(0.4))
    assert {lost[f"table4.{one}"] for one in ("preserve", "cifar10.mergecomp", "imagenet.mergecomp")} == {
        "not comparable"
    }
    none = [row for row in rows(0.5) if row.case.scheme != "mergecomp"]
    assert "no long row of merged dgc, merged ef_signsgd" in judged("mergecomp.table4", none)["table4.preserve"][1]


def test_a_level_of_a_network_that_was_trained_is_measured_and_no_level_has_no_source() -> None:
    figure = FIGURES["mergecomp.table4"]
    rows = figure.select([*others(), *seeds("ddp", 0.5)])
    for key in ("cifar10", "imagenet"):
        (level,) = [one for one in figure.judge(rows) if one.claim == f"mergecomp.table4.{key}.fp32"]
        assert (level.ours, level.outcome, level.source) == ("50.0 percent", "not comparable", "measured")
    assert absent("micro.fig2.gpus", "why", source="measured").source == "none"


@pytest.mark.slow
def test_times_to_converge_say_what_they_take_for_granted() -> None:
    steps = simulated("mergecomp_clusters", "workload=resnet50_imagenet", "cluster.devices_per_node=4")
    found = [*others(), *seeds("ddp", 0.5), *seeds("per_tensor", 0.5, **SIGNS)]
    claim = "fig8.layer"
    outcome, said = judged("mergecomp.fig8", [*steps, *found])[claim]
    assert "no long row of merged ef_signsgd" in said
    same = judged("mergecomp.fig8", [*steps, *found, *seeds("mergecomp", 0.5, **SIGNS)])[claim]
    worse = judged("mergecomp.fig8", [*steps, *found, *seeds("mergecomp", 0.3, **SIGNS)])[claim]
    assert same[0] == outcome
    assert "quality over layerwise is" in same[1]
    assert worse[0] == ("not comparable" if outcome == "agrees" else outcome)
    assert outcome != "agrees" or worse[1].partition(" x ")[2].startswith("merging ends below layerwise, so that")


def sparsifiers(**curves: dict[str, list[float | None]]) -> list[Row]:
    """Return two seeds of MiCRO's four sparsifiers with curves of their own."""
    qualities = {"topk": 0.5, "cltk": 0.5, "hard_threshold": 0.5, "micro": 0.5}
    return [
        row
        for scheme, quality in qualities.items()
        for row in seeds(scheme, quality, curve=curves.get(scheme), compressor="topk", density=0.01, memory="residual")
    ]


def test_micro_follows_densities_errors_and_thresholds() -> None:
    def rows(micro: float, topk: float, hard: list[float | None], errors: list[float | None]) -> list[Row]:
        return sparsifiers(
            micro={"union_density": [micro] * 4, "threshold": [1.0, 2.0, 3.0, 4.0], "error_norm": errors},
            topk={"union_density": [topk] * 4, "error_norm": [2.0] * 4},
            hard_threshold={"union_density": hard, "error_norm": errors},
        )

    rising: list[float | None] = [0.02, 0.03, 0.04, 0.05]
    steady: list[float | None] = [1.0, 1.01, 1.02, 1.03]
    good = rows(0.01, 0.03, rising, steady)
    bad = rows(0.02, 0.01, rising[::-1], [5.0, 4.0, 3.0, 2.0])
    for name, claims in (
        ("micro.fig5", ("micro", "topk", "hard")),
        ("micro.fig2", ("order",)),
    ):
        short = name.removeprefix("micro.")
        assert {outcomes(name, good)[f"{short}.{claim}"] for claim in claims} == {"agrees"}
        assert "agrees" not in {outcomes(name, bad)[f"{short}.{claim}"] for claim in claims}
    tracks = {outcomes("micro.fig8", some)["fig8.track"] for some in (good, bad)}
    assert tracks == {"partly", "disagrees"}  # one setting of the paper's twelve is no "every"


def test_micros_figures_keep_to_the_network_of_all_its_rivals(tmp_path: Path) -> None:
    sparse: dict[str, Any] = {"compressor": "topk", "density": 0.01, "memory": "residual"}
    elsewhere = [
        *seeds("cltk", 70.0, model="gpt2_small_wikitext2", curve={"union_density": [0.5] * 4}, **sparse),
        *seeds("auto", 70.0, model=TEXT),
    ]
    rows = [*others(), *sparsifiers(cltk={"union_density": [0.01] * 4})]
    for name in ("micro.fig4", "micro.fig5"):
        figure = FIGURES[name]
        alone, beside = (figure.select(every) for every in (rows, [*elsewhere, *rows]))
        drawn = [
            next(path for path in figure.draw(some, tmp_path) if path.suffix == ".csv").read_text()
            for some in (alone, beside)
        ]
        assert drawn[0] == drawn[1]
        assert figure.judge(beside) == figure.judge(alone)


@pytest.mark.slow
def test_micro_is_first_where_its_steps_times_its_step_are() -> None:
    steps = simulated("micro_clusters")
    early, late = ([value, 0.5, 0.5, 0.5] for value in (0.5, 0.1))
    soon = sparsifiers(micro={"top1": early}, topk={"top1": late}, hard_threshold={"top1": late}, cltk={"top1": late})
    found = outcomes("micro.fig4", [*others(), *soon, *steps])
    assert (found["fig4.hard"], found["fig4.accuracy"]) == ("agrees", "not comparable")
    fastest = judged("micro.fig4", [*others(), *soon, *steps])["fig4.fastest"]
    assert fastest[0] == "not comparable"
    assert "shorter for all seeds in 9 of 9 pairs" in fastest[1]
    assert "our Top-k finds its threshold by histogram and sorts nothing" in fastest[1]
    slow = sparsifiers(
        micro={"top1": [0.1, 0.1, 0.1, 0.5]}, topk={"top1": early}, hard_threshold={"top1": early}, cltk={"top1": early}
    )
    found = judged("micro.fig4", [*others(), *slow, *steps])
    assert found["fig4.hard"][0] == "disagrees"
    assert "longer for all in 9" in found["fig4.fastest"][1]
    without = [row for row in slow if row.case.scheme != "hard_threshold"]
    assert "longer for all in 6" in judged("micro.fig4", [*others(), *without, *steps])["fig4.fastest"][1]


def test_each_claim_of_micros_figure_needs_the_sparsifiers_that_it_names_alone() -> None:
    two = [row for row in sparsifiers() if row.case.scheme in ("topk", "cltk")]
    found = judged("micro.fig4", [*others(), *two])
    assert found["fig4.topk_cltk"][0] == "agrees"
    assert "no long row of hard threshold, MiCRO yet" in found["fig4.hard"][1]
    three = [row for row in sparsifiers() if row.case.scheme != "hard_threshold"]
    alike = judged("micro.fig4", [*others(), *three])["fig4.accuracy"]
    assert alike[0] == "not comparable"  # whoever is missing: none has converged
    assert "CLT-k over MiCRO" in alike[1]
    assert "stop after 2,000 steps" in alike[1]


def test_a_pair_that_contradicts_decides_alone_and_one_that_holds_does_not_while_others_are_missing() -> None:
    first, later = [1.0, 2.0], [3.0, 4.0]
    for pairs, missing, outcome in (
        ([(first, later)], (), "agrees"),
        ([(first, later)], ("hard threshold",), "not comparable"),
        ([(later, first)], ("hard threshold",), "disagrees"),
        ([(first, later), (first, first)], (), "partly"),
    ):
        one = judged_times("micro.fig4.hard", pairs, "nominal", missing)
        assert one.outcome == outcome
        assert ("no long row of hard threshold yet" in one.reason) == bool(missing)


def test_a_run_of_another_optimizer_is_not_one_of_micros() -> None:
    own = seeds("cltk", 0.5, compressor="topk", density=0.01, memory="residual")
    other = seeds("cltk", 0.9, compressor="topk", density=0.01, memory="residual", optimizer="adamw")
    assert {name: [row.run_id for row in rows] for name, rows in micro_runs([*own, *other]).items()} == {
        "CLT-k": [row.run_id for row in own]
    }


def test_workers_end_alike_or_not() -> None:
    def rows(eight: float) -> list[Row]:
        given: dict[str, Any] = {"compressor": "topk", "density": 0.01, "memory": "residual"}
        return [
            *others(),
            *(
                row
                for workers, quality in ((2, 0.5), (4, 0.5), (8, eight))
                for row in seeds("micro", quality, world_size=workers, **given)
            ),
        ]

    assert outcomes("micro.fig7", rows(0.4))["fig7.accuracy"] == "not comparable"
    assert "MiCRO on 8 workers" in judged("micro.fig7", rows(0.5)[:-2])["fig7.accuracy"][1]


def test_a_sketch_keeps_accuracy_or_not() -> None:
    def rows(sketch: float, coarse: float) -> list[Row]:
        found = [*others(), *seeds("ddp", 0.5), *seeds("fused_all", 0.5, **BLOCKS)]
        for ratio, quality in ((1.0, 0.5), (None, sketch), (0.05, coarse)):
            found += seeds("s2reducer", quality, scheme_options={"ratio": ratio} if ratio else {}, **BLOCKS)
        return found

    assert outcomes("s2reducer.fig8", rows(0.4, 0.5))["appB3.best"] == "not comparable"
    lost = outcomes("s2reducer.fig3", rows(0.4, 0.4))
    assert (lost["fig3.d.accuracy"], lost["headline.accuracy"]) == ("not comparable", "not comparable")
    assert lost["fig3.parity"] == "not attempted"


def test_table_5_measures_long_runs_of_ssfusion_alone() -> None:
    figure = FIGURES["ssfusion.table5"]
    rows = []
    for scheme, share in (("ssfusion_oi", 0.01), ("auto", 0.3)):
        one = long_row(scheme, 0.5)
        one.metrics.update(profile_share=share, profile_s=0.5, plan_s=0.5, profiled_steps=5.0)  # type: ignore[attr-defined]
        rows.append(one)
    assert figure.finding(rows) == "observing and planning take 1 to 1 % of runs of 2000 steps (measured)"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUALITY_FIGURES, "s2reducer.fig8"])
def test_every_figure_is_drawn_from_some_of_its_rows(name: str, tmp_path: Path) -> None:
    curves = {"union_density": [0.01] * 4, "error_norm": [1.0, 2.0, 3.0, 4.0], "threshold": [1.0, 2.0, 3.0, 4.0]}
    rows = [
        *seeds("ddp", 0.5),
        *seeds("per_tensor", 0.45, **DGC),
        *seeds("fused_all", 0.4, **DGC),
        *seeds("acpsgd", 0.4, **LOW_RANK),
        *seeds("fused_all", 0.45, **BLOCKS),
        *seeds("s2reducer", 0.4, **BLOCKS),
        *seeds("micro", 0.4, curve=curves, compressor="topk", density=0.01, memory="residual"),
        *seeds("hard_threshold", 0.4, curve=curves, compressor="hard_threshold", density=0.01, memory="residual"),
        *seeds("acpsgd", 0.4, compressor="acpsgd", memory="none"),
        *others(),
    ]
    figure = FIGURES[name]
    assert figure.draw(figure.select(rows), tmp_path)
    table = (tmp_path / f"{name}.csv").read_text()
    assert "no long row" in table or name == "micro.fig8"
