"""model.path=DIR: training starts from weights that transformers saved, and says in one line why it cannot."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from workloads.fakes import make_case
from workloads.own_models import reader

import ssfx
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.workloads import models
from ssfx.lab.workloads.initial_weights import named_weights, start_from
from ssfx.lab.workloads.nets.hugging_face import bert_pretraining, bert_qa, gpt2
from ssfx.lab.workloads.train import train

WORDS = ("workload=mini_bert", "scheme=ddp", "device=cpu")


def saved(model: Any, folder: Path) -> Path:
    getattr(model, "network", model).save_pretrained(folder)
    return folder


@pytest.fixture
def bert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    torch.manual_seed(5)
    folder = saved(models["bert_mini"].build(), tmp_path / "mine")
    monkeypatch.setenv("SSFX_MODEL_PATH", str(folder))
    return folder


def test_the_name_follows_the_content(bert: Path, tmp_path: Path) -> None:
    name = named_weights(bert)
    assert name.startswith("mine#")
    assert len(name) == len("mine#") + 16
    other = tmp_path / "copy" / "mine"
    shutil.copytree(bert, other)
    assert named_weights(other) == name  # wherever it lies
    changed = saved(models["bert_mini"].build(), tmp_path / "other" / "mine")
    assert named_weights(changed) != name


def test_every_tensor_is_that_of_the_folder(bert: Path) -> None:
    torch.manual_seed(5)
    expected = models["bert_mini"].build().state_dict()
    torch.manual_seed(6)
    model = models["bert_mini"].build()
    assert start_from(model, named_weights(bert)) == (f"starts from the weights {named_weights(bert)}",)
    for key, value in model.state_dict().items():
        assert torch.equal(value, expected[key]), key


def test_a_run_starts_from_the_weights_and_says_so(bert: Path) -> None:
    def trained(weights: str) -> tuple[float, tuple[str, ...]]:
        losses = []
        case = make_case(
            model="bert_mini",
            dataset="generated_questions",
            scheme="ddp",
            steps=1,
            world_size=1,
            evaluate=False,
            initial_weights=weights,
        )
        result = train(case, lambda record: losses.append(record.loss), ssfx.attach)
        return losses[0], result.notes

    name = named_weights(bert)
    assert trained(name)[0] != trained("")[0]
    assert f"starts from the weights {name}" in trained(name)[1]


def test_the_case_is_that_of_the_weights(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSFX_MODEL_PATH")
    (plain,) = resolve_job(WORDS).cases[:1]
    (case,) = resolve_job([*WORDS, f"model.path={bert}"]).cases[:1]
    assert case.initial_weights == named_weights(bert)
    assert Case.from_json(case.to_json()) == case
    assert case.run_id != plain.run_id
    assert resolve_job(WORDS).cases[0] == plain  # the weights of one command are not those of the next


def test_a_gpt2_of_a_larger_vocabulary_takes_a_smaller_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, Any] = {"width": 16, "layers": 1, "heads": 2, "positions": 8, "dropout": 0.0}
    small, large = gpt2(vocabulary=50, **sizes), gpt2(vocabulary=64, **sizes)
    monkeypatch.setenv("SSFX_MODEL_PATH", str(saved(small, tmp_path / "gpt")))
    notes = start_from(large, named_weights(tmp_path / "gpt"))
    assert any("50 tokens" in note for note in notes)
    one, other = small.state_dict()["transformer.wte.weight"], large.state_dict()["transformer.wte.weight"]
    assert torch.equal(one, other[:50])
    assert large.state_dict()["lm_head.weight"].data_ptr() == other.data_ptr()  # still tied


def test_a_head_that_is_not_there_is_random_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = bert_pretraining(width=16, layers=1, heads=2, vocabulary=400)
    monkeypatch.setenv("SSFX_MODEL_PATH", str(saved(trained, tmp_path / "bert")))
    model = reader()
    notes = start_from(model, named_weights(tmp_path / "bert"))
    assert any("random: qa_outputs.bias, qa_outputs.weight" in note for note in notes)
    key = "bert.encoder.layer.0.output.dense.weight"
    assert torch.equal(model.state_dict()[key], trained.state_dict()[key])


def _without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _torn(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"torn")


def _deeper(folder: Path) -> None:
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**said, "num_hidden_layers": 3}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (shutil.rmtree, r"model\.path=.*mine is no folder"),
        (_without("config.json"), r"mine lacks config\.json"),
        (_without("model.safetensors"), r"lacks the weights: model\.safetensors or pytorch_model\.bin or model\.saf"),
        (_torn, r"mine cannot be read: SafetensorError"),
        (_deeper, r"config\.json says num_hidden_layers=3, and the model has 2"),
    ],
    ids=["folder", "config", "weights", "torn", "layers"],
)
def test_what_is_wrong_with_the_folder_is_one_line(bert: Path, damage: Callable[[Path], Any], said: str) -> None:
    damage(bert)
    with pytest.raises(ConfigError, match=said) as error:
        start_from(models["bert_mini"].build(), named_weights(bert))
    assert "\n" not in str(error.value)


def test_a_checkpoint_of_another_shape_or_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for model, said in (
        (bert_qa(width=32, layers=1, heads=2, vocabulary=400), "hidden_size=32, and the model has 16"),
        (bert_qa(width=16, layers=1, heads=2, vocabulary=401), "vocab_size=401, and the model has 400"),
        (gpt2(width=16, layers=1, heads=2, vocabulary=400, positions=8, dropout=0.0), "=gpt2, and the model has bert"),
    ):
        folder = tmp_path / said.split(",")[0]
        monkeypatch.setenv("SSFX_MODEL_PATH", str(saved(model, folder)))
        with pytest.raises(ConfigError, match=said):
            start_from(reader(), named_weights(folder))


def test_weights_that_were_changed_since_are_refused(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="starts from the weights mine#0123, which are not in"):
        start_from(models["bert_mini"].build(), "mine#0123")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("workload=mini_vgg", "scheme=ddp"), "which model=vgg_mini does not take"),
        ((*WORDS[:2], "cluster=64gpu"), "model.path has no effect on a simulated step"),
    ],
)
def test_where_weights_would_do_nothing_they_are_refused(bert: Path, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve_job([*words, f"model.path={bert}"])
