"""advise --quality: steps by the curves of recorded runs, over the training that was asked about, times a step."""

import json
import re
from math import inf

import pytest

from ssfx.advice import sending
from ssfx.advice.ranking import Advice, Entry, advise
from ssfx.advice.sending import steps_of
from ssfx.cli import main
from ssfx.config.advice_question import resolve_setting, split_steps
from ssfx.core.errors import ConfigError
from ssfx.planning.plan import Bucket, Lane, Plan, Segment, TensorSpec, launch_in_order
from ssfx.schemes import schemes
from ssfx.schemes.search.extra_steps import MORE_STEPS, ExtraSteps

WORDS = ["model=lstm_wikitext2", "cluster=acpsgd_10gbe", "cluster.nodes=4", "cluster.devices_per_node=1"]
NAMES = ("ddp", "ddp_fp16", "powersgd", "ssfusion_oi", "per_tensor", "cltk", "gtopk", "auto")


def by_scheme(advice: Advice) -> dict[str, Entry]:
    return {one.scheme: one for one in advice.entries}


@pytest.fixture(scope="module")
def asked() -> Advice:
    return advise(resolve_setting([*WORDS, "train_steps=2000"]), NAMES)


def test_schemes_are_ranked_by_steps_of_the_curves_times_a_step(asked: Advice) -> None:
    found = by_scheme(asked)
    assert found["ddp"].steps == 2000
    for one in found.values():
        share = one.needed.share
        assert one.steps == (inf if share is None else pytest.approx(2000 * (1 + share)))
    where = "of them of lstm networks with adam, over 2,000 to [0-9]+,000 steps, here 2,000"
    assert found["ddp_fp16"].needed.source.startswith("sums in 16 bits: ")
    assert re.search(f" {where}$", found["ddp_fp16"].needed.source)
    assert found["powersgd"].needed == steps_of(found["powersgd"].trial.plan, asked.setting.network, 2000)
    assert found["ssfusion_oi"].steps > 2000
    assert found["gtopk"].needed.source.startswith("quality unknown: no run is recorded")


def test_sixteen_bits_count_as_dense_where_nothing_is_recorded() -> None:
    """No run that decides has fp16 with Muon."""
    setting = resolve_setting([*WORDS, "optimizer=muon"])
    found = {name: one.needed for name, one in by_scheme(advise(setting, ["ddp_fp16", "powersgd"])).items()}
    assert (found["ddp_fp16"].share, found["powersgd"].unknown) == (0.0, True)
    assert "in 16 bits, of which no run is recorded" in found["ddp_fp16"].source


@pytest.mark.parametrize("model", ["lstm_wikitext2_small", "vgg_small_cifar10"])
def test_nothing_that_keeps_the_quality_of_auto_trains_much_faster(model: str) -> None:
    """Must hold of quality=normal, in its cheap form: simulated, on the tasks of the long runs.

    ACP-SGD may end earlier with half as many steps again, which no quality allows; Parallax rests on assumed gradients.
    """
    every = [name for name in schemes.names() if not schemes[name].in_rounds]
    found = by_scheme(advise(resolve_setting([f"model={model}", "cluster=emulated_4x1gbit"]), every))
    auto = found["auto"]
    others = [one for name, one in found.items() if one.needed.within(MORE_STEPS["normal"]) and name != "parallax"]
    assert auto in others
    assert len(others) > 5
    assert auto.steps * auto.iteration_s <= 1.05 * min(one.steps * one.iteration_s for one in others)


def test_the_command_says_the_steps_and_what_they_rest_on(
    asked: Advice, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ssfx.cli.advise.ranked", lambda setting: asked)
    monkeypatch.setattr("ssfx.lab.results.store.Store.readable", lambda self: ([], []))
    assert main(["advise", *WORDS, "--quality"]) == 0
    out = capsys.readouterr().out
    assert "2,000 steps: steps by recorded runs" in out
    *_, table = out.partition("minutes\n")
    lines = table.partition("published, not run by ssfx")[0].splitlines()
    minutes = [line.split()[-1] for line in lines[: len(asked.entries)]]
    assert sorted(minutes, key=lambda one: inf if one == "-" else float(one.replace(",", ""))) == minutes
    assert any("ddp_fp16" in line and "of lstm networks with adam" in line for line in lines[len(asked.entries) :])
    assert any(line.startswith("gtopk") and " unknown " in line for line in lines)
    assert "no published pair of such a network, optimizer and ratio: " in out
    assert main(["advise", *WORDS, "--json"]) == 0
    found = {one["scheme"]: one for one in json.loads(capsys.readouterr().out)["schemes"]}
    assert found["ddp"]["train_steps"] == 2000
    assert found["gtopk"]["time_s"] is None


@pytest.mark.parametrize("text", ["0", "many", "-5", "1e4.5", "0.5"])
def test_a_number_of_steps_is_a_whole_one(text: str) -> None:
    with pytest.raises(ConfigError, match="is no number of steps"):
        split_steps([f"train_steps={text}"])
    for whole in ("10_000", "1e4"):
        assert split_steps(["a=1", f"train_steps={whole}"]) == (("a=1",), 10_000)


def test_of_equally_good_records_a_plan_rests_on_that_of_its_first_message(monkeypatch, asked: Advice) -> None:
    """Pages are written from it, so it must not change from process to process."""
    tensors = tuple(TensorSpec(f"t{number}", (8,)) for number in range(8))
    monkeypatch.setattr(sending, "_of_method", lambda _, one, *__: ExtraSteps(0.0, 0.0, 0.0, one.tensors[0], 2))
    for order in (tensors, tensors[::-1]):
        buckets = tuple(Bucket((Lane("all_gather", (Segment((one.name,), "dgc", 0.5),)),)) for one in order)
        plan = Plan("auto", 2, tensors, buckets, launch_in_order(buckets, tensors))
        assert steps_of(plan, asked.setting.network, 2000).source == order[0].name
