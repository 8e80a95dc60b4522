"""What a run ends with: schemes beside dense DDP, how sure the difference is, and whether the machine was busy."""

from dataclasses import replace

import pytest
from figures.synthetic import row
from refusals import output, refusal

from ssfx.cli import main
from ssfx.core.rows import Row
from ssfx.lab.cli.outcome import print_outcome
from ssfx.lab.cli.show import _say_plan
from ssfx.lab.results.speedup import speedup
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, TensorSpec, launch_in_order

SIMULATED = ["run", "experiment=throughput", "cluster=16gpu", "scheme=ddp,ssfusion_oi", "workload=resnet152_imagenet"]


def timed(scheme: str, ms: float, spread: float, repeat: int = 0, **manifest: float) -> Row:
    """Return a made-up row whose iterations are spread evenly around `ms`."""
    made = row(scheme=scheme)
    times = [1e-3 * ms * (1 + spread * (i - 10) / 10) for i in range(21)]
    metrics = {**made.metrics, "iteration_s": times[10], "iteration_p10_s": times[2], "iteration_p90_s": times[18]}
    case = replace(made.case, repeat=repeat)
    return replace(
        made,
        case=case,
        run_id=case.run_id,
        metrics=metrics,
        samples={"iteration_s": times},
        manifest={**made.manifest, **manifest},
    )


def test_a_clear_difference_has_an_interval_beyond_one():
    found = speedup([timed("ddp", 20.0, 0.1)], [timed("topk", 10.0, 0.1)])
    assert found.ratio == pytest.approx(2.0)
    assert 1.8 < found.low < 2.0 < found.high < 2.3
    assert found.clear


def test_a_difference_within_noise_is_not_clear():
    assert not speedup([timed("ddp", 20.0, 0.5)], [timed("topk", 19.5, 0.5)]).clear


def test_runs_that_differ_from_each_other_widen_the_interval():
    steady = speedup([timed("ddp", 20.0, 0.01)], [timed("topk", 18.0, 0.01)])
    shaky = speedup(
        [timed("ddp", 20.0, 0.01)],
        [timed("topk", 14.0, 0.01), timed("topk", 18.0, 0.01, 1), timed("topk", 24.0, 0.01, 2)],
    )
    assert shaky.high - shaky.low > 5 * (steady.high - steady.low)


def test_a_simulated_difference_has_no_interval():
    rows = [replace(one, samples={}) for one in (timed("ddp", 20.0, 0.1), timed("topk", 10.0, 0.1))]
    assert str(speedup(rows[:1], rows[1:])) == "2.00x"


def test_the_fastest_stands_first_and_noise_is_named(capsys):
    print_outcome([timed("ddp", 20.0, 0.5), timed("topk", 10.0, 0.1), timed("cupcake", 19.8, 0.5)])
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines[3:6]]
    assert names == ["topk", "cupcake", "ddp"]
    assert "1.00x" in lines[5]
    assert lines[6].startswith("within noise of dense: cupcake;")


def test_a_busy_machine_is_told(capsys):
    print_outcome([timed("ddp", 20.0, 0.1, background_cores=1.67)])
    assert "other programs used up to 1.7 cores" in capsys.readouterr().out
    print_outcome([timed("ddp", 20.0, 0.1, background_cores=0.01)])
    assert "busy" not in capsys.readouterr().out


def test_a_run_ends_with_the_table(capsys):
    assert (
        main(["run", "experiment=throughput", "cluster=16gpu", "scheme=ddp,ssfusion_oi", "workload=resnet152_imagenet"])
        == 0
    )
    out = capsys.readouterr().out
    assert "against dense" in out
    assert out.index("ssfusion_oi ") < out.index("figure: ")


def test_runs_and_schemes_are_shown_side_by_side(capsys):
    assert (
        main(["run", "experiment=throughput", "cluster=16gpu", "scheme=ddp,ssfusion_oi", "workload=resnet152_imagenet"])
        == 0
    )
    capsys.readouterr()
    narrow = ["experiment=throughput", "model=resnet152", "cluster=16gpu"]
    out = output(capsys, "show", "ssfusion_oi", "ddp", *narrow)
    assert "resnet152 / imagenet" in out
    assert "ssfusion_oi trains at " in out
    assert "the speed of ddp" in out
    assert main(["show", "ssfusion_oi", "ddp", "modle=resnet152"]) == 2
    assert capsys.readouterr().err == "ssfx: unknown key 'modle'; did you mean 'model'?\n"
    assert "no finished run has model=nosuch; there are " in refusal(capsys, "show", "ssfusion_oi", "model=nosuch")
    assert "name a scheme or a run to compare" in refusal(capsys, "show", *narrow)
    assert "neither a scheme nor the beginning of a run's id" in refusal(capsys, "show", "nosuch", "ddp")
    assert "--json is of one run" in refusal(capsys, "show", "--json", "ddp")
    assert "add --trace" in refusal(capsys, "show", "--step", "1", "ddp")
    assert "no finished run has an id that begins with zzzz" in refusal(capsys, "show", "zzzz")


def test_a_comparison_of_many_settings_fits_a_screen_and_says_how_to_narrow_it(capsys):
    out = output(capsys, "show", "ddp")
    assert len(out.splitlines()) < 50
    assert " more settings: narrow them with model=" in out.splitlines()[-2] + out.splitlines()[-1]


def test_show_says_what_a_run_was(capsys):
    words = [
        "run",
        "experiment=throughput",
        "cluster=16gpu",
        "scheme=ddp",
        "workload=resnet152_imagenet",
        "batch_size=24",
    ]
    run_id = output(capsys, *words, "--dry-run").splitlines()[-1].split()[0]
    assert main(words) == 0
    capsys.readouterr()
    out = output(capsys, "show", run_id)
    assert out.startswith(f"{run_id}  ")
    assert "simulated on" in out
    assert "part of an iteration" in out


def test_show_says_what_the_plan_of_a_run_sent_and_why(tmp_path, capsys):
    tensors = (TensorSpec("a", (8,)), TensorSpec("b", (4,)))
    buckets = (Bucket((Lane("all_gather", (Segment(("a",), "dgc", 0.5), Segment(("b",)))),)),)
    plan = Plan("auto", 2, tensors, buckets, launch_in_order(buckets, tensors), notes=(("tried", "3 plans: ..."),))
    _say_plan(tmp_path / "plan.json")
    assert capsys.readouterr().out == ""
    (tmp_path / "plan.json").write_text(plan.to_json())
    _say_plan(tmp_path / "plan.json")
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"plan {plan.digest}: 1 messages; dense by all_gather, dgc by all_gather"
    assert second == "tried: 3 plans: ..."


def test_an_interval_says_of_what_it_is(capsys):
    print_outcome([timed("ddp", 20.0, 0.1), timed("topk", 10.0, 0.1)])
    said = " ".join(capsys.readouterr().out.split())
    assert "of against dense, the 95 % interval of dense's median step over the scheme's, by bootstrap" in said
    exact = [replace(one, samples={}) for one in (timed("ddp", 20.0, 0.1), timed("topk", 10.0, 0.1))]
    for one in exact:
        one.metrics.pop("iteration_p10_s")
    print_outcome(exact)
    assert "95 % interval" not in capsys.readouterr().out


def test_a_scheme_whose_plan_sent_everything_says_so_in_its_row(capsys):
    sparse = timed("topk", 10.0, 0.1)
    case = replace(sparse.case, compressor="topk", density=0.05)
    asked = replace(sparse, case=case, run_id=case.run_id)
    for achieved, told in ((1.0, True), (0.05, False)):
        print_outcome(
            [timed("ddp", 20.0, 0.1), replace(asked, metrics={**asked.metrics, "achieved_density": achieved})]
        )
        assert ("(sent dense)" in capsys.readouterr().out) is told


def test_a_sweep_ends_with_a_table_whose_rows_are_what_was_swept(capsys):
    words = ["engine=simulate", "model=gpt2", "dataset=wikitext2", "cluster=box", "cluster.inter.gbps=10,2"]
    said = output(capsys, "run", *words, "scheme=ddp,ddp_fp16").split("\nms a step ")[1].splitlines()
    assert said[0].split() == ["ddp", "ddp_fp16"]
    assert [line.partition(")")[0] for line in said[1:3]] == [f"cluster box(inter.gbps={gbps}" for gbps in (2, 10)]
