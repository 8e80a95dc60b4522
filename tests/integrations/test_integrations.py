"""ssfx in other people's trainers, with the real libraries on two CPU ranks: exchanged once, resumed exactly."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from processes import finished, torchrun

LIBRARY = {"trainer": "transformers", "accelerate": "accelerate", "lightning": "lightning", "sharded": "accelerate"}
SCRIPT = Path(__file__).with_name("scripts.py")


def launch(kind: str, folder: Path) -> list[list[dict[str, Any]]]:
    done = finished(torchrun(folder, SCRIPT, kind, folder))
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"report-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.slow
@pytest.mark.torchrun
@pytest.mark.parametrize("kind", LIBRARY)
def test_a_trainer_exchanges_by_ssfx_alone_and_resumes_exactly(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip(LIBRARY[kind])
    for whole, resumed in launch(kind, tmp_path):
        assert not whole["ddp"]
        assert whole["replicas_equal"]
        assert resumed["replicas_equal"]
        assert whole["steps"] == resumed["steps"] == 6
        assert 0 < whole["bytes_of_a_step"] < whole["dense_bytes"] / 2  # one sparse exchange, no dense one beside it
        assert whole["residual"] > 0
        for quantity in ("parameters", "norm", "residual"):
            assert whole[quantity] == resumed[quantity], quantity


@pytest.mark.parametrize(("most", "scheme", "said"), [(1.0, "auto", True), (0.0, "auto", False), (1.0, "ddp", None)])
def test_trainers_say_whether_they_clip_to_a_scheme_that_asks(
    most: float, scheme: str, said: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf = pytest.importorskip("ssfx.runtime.integrations.hf")
    other = pytest.importorskip("ssfx.runtime.integrations.lightning")
    given: list[Any] = []
    monkeypatch.setattr(hf, "attach", lambda model, optimizer, **options: given.append(options.get("clipped")))
    monkeypatch.setattr(other, "attach_whole", hf.attach)
    trainer = SimpleNamespace(model_wrapped=None, accelerator=SimpleNamespace(prepare_model=print))
    arguments, state = SimpleNamespace(max_grad_norm=most), SimpleNamespace(global_step=0)
    hf.SsfxCallback(trainer, scheme=scheme).on_train_begin(arguments, state, None, model=None, optimizer=None)

    monkeypatch.setattr(other.DDPStrategy, "setup", lambda self, trainer: None)
    monkeypatch.setattr(other.SsfxStrategy, "model", None)
    fitting = SimpleNamespace(gradient_clip_val=most, state=SimpleNamespace(fn=other.TrainerFn.FITTING))
    other.SsfxStrategy(scheme=scheme).setup(fitting)
    assert given == [said, said]
