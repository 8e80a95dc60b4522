"""`ssfx profile` measures what was asked for, writes it where it says, and tells what it cannot measure."""

from dataclasses import replace

import pytest
from refusals import output, refusal

from ssfx.cli import main
from ssfx.core.origin import Origin
from ssfx.lab.config.profiles import Measurement, resolve_profile
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile


@pytest.fixture
def recorded(monkeypatch):
    """Measure nothing: note the request and return four tensors of made-up times."""
    requests = []

    def record_profile(model, dataset, batch_size, device, *, ranks, optimizer):
        requests.append(Measurement(model, dataset, batch_size, optimizer, device, ranks))
        tensors = tuple(TensorSpec(f"t{i}", (numel,)) for i, numel in enumerate((10, 300_000, 64, 40_000)))
        origin = Origin("measured", hardware="Invented CPU, 2 cores", date="2026-01-01", note="made up")
        times = {"forward_s": 0.002, "step_s": 0.001, "other_s": 0.001}
        return Profile(
            model,
            tensors,
            (0.001, 0.002, 0.002, 0.001),
            origin=origin,
            batch_size=batch_size,
            device=device,
            ranks=ranks,
            optimizer=optimizer,
            **times,
        )

    monkeypatch.setattr("ssfx.lab.workloads.profiling.record_profile", record_profile)
    return requests


def test_a_profile_is_written_below_results_and_summed_up(recorded, tmp_path, capsys):
    assert main(["profile", "model=resnet_tiny", "batch_size=4", "ranks=2"]) == 0
    assert recorded == [Measurement("resnet_tiny", "digits", 4, "sgd", "cpu", 2)]
    path = tmp_path / "results" / "profiles" / "resnet_tiny-cpu-x2-b4.json"
    assert Profile.from_json(path.read_text()).batch_size == 4
    out = capsys.readouterr().out
    assert "resnet_tiny on cpu, batch 4, 2 ranks at once" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["backward", "6.000", "60.0%"] in lines
    assert ["iteration", "10.000"] in lines
    assert "longest wait: 2.000 ms for t1" in out
    assert "measured on Invented CPU, 2 cores, 2026-01-01: made up" in out
    assert out.splitlines()[-1] == str(path)


def test_profiles_of_several_batch_sizes_and_optimizers_lie_side_by_side(recorded, tmp_path, capsys):
    for words in ([], ["batch_size=4"], ["optimizer=adam"]):
        assert main(["profile", "model=resnet_tiny", "ranks=2", *words]) == 0
    names = sorted(path.name for path in (tmp_path / "results" / "profiles").iterdir())
    assert names == ["resnet_tiny-cpu-x2-adam.json", "resnet_tiny-cpu-x2-b4.json", "resnet_tiny-cpu-x2.json"]
    capsys.readouterr()
    out = output(capsys, "simulate", "model=resnet_tiny", "cluster=local", "scheme=ddp", "batch_size=4,8")
    assert "profile: measured, cpu on Invented CPU, 2 cores, 2026-01-01. made up\n" in out
    assert "profile: nominal, cpu. roofline, not measured" in out


def test_the_file_can_be_chosen_and_the_word_model_written(recorded, tmp_path):
    path = tmp_path / "new" / "mine.json"
    assert main(["profile", "--out", str(path), "model=resnet_tiny"]) == 0
    first = path.read_text()
    assert main(["profile", "model", "model=resnet_tiny", "--out", str(path)]) == 0
    assert path.read_text() == first
    words = ["model=gpt2_tiny", "dataset=stdlib_text", "dataset.seq_len=32", "--out", str(path)]
    assert main(["profile", *words]) == 0
    assert recorded[-1].dataset == "stdlib_text(seq_len=32)"


def test_the_faster_of_two_profiles_of_a_machine_can_be_kept(recorded, tmp_path, capsys):
    path = tmp_path / "mine.json"
    command = ["profile", "model=resnet_tiny", "--if-faster", "--out", str(path)]
    assert main(command) == 0
    measured = Profile.from_json(path.read_text())
    for factor, hardware, kept in ((0.5, "Invented CPU, 2 cores", True), (2.0, "Invented CPU, 2 cores", False)):
        there = replace(measured, forward_s=factor * 0.002, origin=replace(measured.origin, hardware=hardware))
        path.write_text(there.to_json())
        capsys.readouterr()
        assert main(command) == 0
        assert Profile.from_json(path.read_text()) == (there if kept else measured)
        assert ("kept: 11 % faster than now" in capsys.readouterr().out) == kept
    path.write_text(replace(measured, forward_s=1e-6, origin=replace(measured.origin, hardware="Another")).to_json())
    assert main(command) == 0
    assert Profile.from_json(path.read_text()) == measured
    path.write_text("{}")
    assert main(command) == 1
    assert "mine.json is no measurement that can be read" in capsys.readouterr().err


def test_a_model_is_measured_as_in_the_workload_that_trains_it():
    assert resolve_profile(["model=gpt2_tiny"]) == Measurement("gpt2_tiny", "stdlib_text", 8, "adamw", "cpu", 1)
    assert resolve_profile(["workload=text_lstm", "ranks=3"]) == Measurement(
        "lstm_tiny", "stdlib_text", 16, "sgd", "cpu", 3
    )
    chosen = resolve_profile(["model=gpt2_tiny", "dataset=stdlib_text", "dataset.seq_len=32", "optimizer=adam"])
    assert (chosen.dataset, chosen.optimizer) == ("stdlib_text(seq_len=32)", "adam")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rank=2"], "unknown key 'rank'; did you mean 'ranks'?"),
        (["ranks=0"], "ranks must be a whole number of at least 1, got '0'"),
        (["ranks=1", "ranks=2"], "ranks is given twice"),
        (["density=0.1"], "a profile does not depend on density; it takes model, workload"),
        (["model=resnet_tiny,lstm_tiny"], "got 2 values of model; choose model=resnet_tiny"),
        (["model=resnt_tiny"], "unknown model 'resnt_tiny'; did you mean 'resnet_tiny'; or count your own"),
        (["resnt_tiny"], "unknown model 'resnt_tiny'; did you mean 'resnet_tiny'; or count your own"),
        (["modle", "model=resnet_tiny"], "unknown thing to profile 'modle'; did you mean 'model'?"),
        (
            ["model=resnet50"],
            "dataset=imagenet needs train/*/, val/*/ in DIR/imagenet, with data.root=DIR or SSFX_DATA=DIR",
        ),
        (["model=resnet_tiny", "device=cuda"], "device=cuda needs a GPU"),
        (["model=resnet_tiny", "batch_size=0"], "batch_size must be at least 1"),
        (["model=gpt2_tiny", "dataset=stdlib_text", "dataset.seq_len=32"], "(seq_len=32) has options, and simulations"),
    ],
)
def test_what_cannot_be_measured_is_told_in_one_line(recorded, words, expected, capsys):
    said = refusal(capsys, "profile", *words)
    assert expected in said
    assert recorded == []
