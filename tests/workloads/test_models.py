import re
import subprocess
import sys

import pytest
import torch

from ssfx.core.errors import ConfigError, RunError
from ssfx.lab.workloads import datasets, models
from ssfx.lab.workloads.nets import torchvision_import
from ssfx.lab.workloads.nets.dit import DiT
from ssfx.lab.workloads.objective import cross_entropy, logits
from ssfx.lab.workloads.samples import networks

SIZES = {name: tuple(one["size"]) for name, one in networks().items()}
"""Trainable parameters and tensors; tied weights count once."""

PUBLISHED_M = {
    "llama3_8b": 8030,  # huggingface.co/meta-llama/Meta-Llama-3-8B: 8.03B
    "qwen3_8b": 8200,  # huggingface.co/Qwen/Qwen3-8B: 8.2B
    "qwen3_1_7b": 1700,  # huggingface.co/Qwen/Qwen3-1.7B: 1.7B
    "qwen3_30b_a3b": 30500,  # huggingface.co/Qwen/Qwen3-30B-A3B: 30.5B in total
    "olmoe_1b_7b": 6900,  # arXiv 2409.02060: 6.9B in total
    "gpt_oss_20b": 20910,  # arXiv 2508.10925, Table 1: 20.91B in total
    "vit_huge": 632,  # arXiv 2010.11929, Table 1
    "dit_xl": 675,  # arXiv 2212.09748, Table 1, its fixed positions of 0.3 M too
    "whisper_large": 1550,  # github.com/openai/whisper: 1550 M, its fixed positions of 1.9 M too
}
"""Millions of parameters as authors print them."""


@pytest.mark.parametrize("name", PUBLISHED_M)
def test_sizes_are_the_published_ones(name: str) -> None:
    assert SIZES[name][0] == pytest.approx(1e6 * PUBLISHED_M[name], rel=0.013)


@pytest.mark.parametrize("name", SIZES)
def test_a_size_in_words_is_the_size(name: str) -> None:
    for digits, unit in re.findall(r"([\d.]+) ([kMB]) parameters", models[name].summary):
        scale = {"k": 1e3, "M": 1e6, "B": 1e9}[unit]
        decimals = len(digits.partition(".")[2])
        assert f"{SIZES[name][0] / scale:.{decimals}f}" == digits


def test_most_summaries_say_a_size() -> None:
    assert sum(" parameters" in models[name].summary for name in SIZES) > len(SIZES) / 2


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str) -> None:
    model = models[name].on_meta()
    parameters = [p for p in model.parameters() if p.requires_grad]
    assert (sum(p.numel() for p in parameters), len(parameters)) == SIZES[name]


def test_tiny_resnet_and_lstm_have_their_sizes() -> None:
    for name in ("resnet_tiny", "lstm_tiny"):
        parameters = list(models[name].build().parameters())
        assert (sum(p.numel() for p in parameters), len(parameters)) == SIZES[name]


@pytest.mark.parametrize("name", ["resnet_tiny", "lstm_tiny"])
def test_logits_have_the_shape_of_the_targets(name: str) -> None:
    dataset = datasets.build("digits" if name == "resnet_tiny" else "stdlib_text(seq_len=16)")
    inputs, targets = dataset.train_loader(0, 1, 3, 0)[0]
    model = models[name].build()
    out = logits(model, inputs)
    assert out.shape[:-1] == targets.shape
    assert out.shape[-1] > targets.max()
    assert cross_entropy(model, inputs, targets).shape == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dataset"), [("resnet152_digits", "digits"), ("bert_large_narrow", "generated_questions(seq_len=40)")]
)
def test_every_tensor_of_a_deep_model_gets_a_gradient(name: str, dataset: str) -> None:
    inputs, targets = datasets.build(dataset).train_loader(0, 1, 2, 0)[0]
    torch.manual_seed(0)
    model = models[name].build()
    out = logits(model, inputs)
    assert out.shape[:-1] == targets.shape
    assert out.shape[-1] > targets.max()
    cross_entropy(model, inputs, targets).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_the_tied_lstm_shares_its_head() -> None:
    model = models["lstm_wikitext2"].on_meta()
    assert model.get_parameter("embedding.weight").shape == (33278, 1500)
    assert "head.weight" not in dict(model.named_parameters())


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean one of resnet152, "):
        models["resnet15"]


def test_registries_need_no_torch() -> None:
    program = (
        "import sys\n"
        "from ssfx.lab.workloads import check_case, datasets, models\n"
        "assert len(models.names()) == 56\n"
        "here = {'digits', 'generated_questions', 'stdlib_text', 'synthetic'}\n"
        "assert {d.name for d in datasets if d.cls.here} == here\n"
        "assert all(m.summary and m.source for m in models)\n"
        "assert datasets.build('stdlib_text(seq_len=7)').seq_len == 7\n"
        "from ssfx.lab.workloads import record\n"
        "heavy = {'torch', 'torchvision', 'transformers', 'sklearn', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


class _Import:
    """Stands in for importlib.import_module: raises the given errors in turn, then returns the name."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)

    def __call__(self, name: str) -> str:
        if self._errors:
            raise self._errors.pop(0)
        return name


@pytest.fixture
def keep_modules(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    declared: list[bool] = []
    monkeypatch.setattr(torchvision_import, "_declare_operators", lambda: declared.append(True))
    monkeypatch.setattr(torchvision_import.sys, "modules", dict(sys.modules))
    return declared


def test_torchvision_without_its_extension_is_repaired(
    monkeypatch: pytest.MonkeyPatch, keep_modules: list[bool]
) -> None:
    missing = RuntimeError("operator torchvision::nms does not exist")
    monkeypatch.setattr(torchvision_import.importlib, "import_module", _Import(missing))
    assert torchvision_import.import_torchvision() == "torchvision"
    assert keep_modules == [True]


@pytest.mark.parametrize(
    "errors",
    [
        [ImportError("undefined symbol: x\nmore")],
        [RuntimeError("something else")],
        [RuntimeError("operator torchvision::nms does not exist"), RuntimeError("still not")],
    ],
)
def test_any_other_torchvision_failure_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, keep_modules: list[bool], errors: list[Exception]
) -> None:
    monkeypatch.setattr(torchvision_import.importlib, "import_module", _Import(*errors))
    with pytest.raises(ConfigError, match=r"install a matching pair.*pip install") as caught:
        torchvision_import.import_torchvision()
    assert "\n" not in str(caught.value)


def test_a_diffusion_transformer_learns_the_noise_of_one_batch() -> None:
    torch.manual_seed(0)
    model = DiT(width=32, layers=2, heads=2)
    latents, labels = torch.randn(4, 4, 32, 32), torch.tensor([0, 1, 2, 999])
    assert model(latents).shape == (4, 8, 32, 32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = cross_entropy(model, latents, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


@pytest.mark.slow
def test_declared_operators_are_known_to_torch() -> None:
    program = (
        "import torch\n"
        "from ssfx.lab.workloads.nets import torchvision_import\n"
        "torchvision_import._declare_operators()\n"
        "print(torch.ops.torchvision.nms.default._schema)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def test_a_target_beyond_the_outputs_is_said():
    with pytest.raises(RunError, match="a target is 3, and the model has 2 outputs"):
        cross_entropy(torch.nn.Linear(4, 2), torch.ones(5, 4), torch.tensor([0, 1, 3, 0, 1]))
