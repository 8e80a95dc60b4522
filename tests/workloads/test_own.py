"""Models and data sets that are functions of the user's own, by file and by module."""

from pathlib import Path

import pytest
import torch
from workloads import own_models
from workloads.fakes import make_case

import ssfx
from ssfx.config.plans import resolve_plan
from ssfx.config.simulations import resolve_simulations
from ssfx.core.errors import ConfigError, RunError
from ssfx.core.user_code import own_code
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.workloads import check_case, datasets, models
from ssfx.lab.workloads.samples import sample_of
from ssfx.lab.workloads.train import train
from ssfx.perf_model.operator_counts import model_work

FILE = own_models.__file__


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_function_is_found_and_read_without_running_its_file(tmp_path: Path) -> None:
    path = tmp_path / "never.py"
    path.write_text("raise SystemExit\ndef build(): pass\nbuild.sample = (4,)\nbuild.other = print\n")
    code = own_code(f"{path}:build")
    assert (code.function, code.says) == ("build", {"sample": (4,)})
    assert models[f"{path}:build"].batch_size == 32
    assert sample_of(f"{path}:build").targets == "next"


@pytest.mark.parametrize(
    "lines",
    [
        "SEQ = 64\nbuild.sample = (SEQ,)\n",
        "(SEQ, LAYERS), WORDS = (64, 2), 128\nbuild.sample: tuple = (SEQ,)\n",
        "SEQ: int = 64\nSHAPE = (SEQ,)\nbuild.sample = SHAPE\n",
        "SEQ = 64\nbuild.sample = (SEQ,)\nSEQ = 32\n",
    ],
)
def test_what_a_function_says_may_be_by_names_of_plain_values(tmp_path: Path, lines: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"def build(): pass\n{lines}")
    assert own_code(f"{path}:build").says["sample"] == (64,)


@pytest.mark.parametrize(
    "lines",
    [
        "from sizes import SEQ\nbuild.sample = (SEQ,)\n",
        "SEQ = 64\nif True:\n    SEQ = 32\nbuild.sample = (SEQ,)\n",
        "SEQ = 64\nSEQ += 1\nbuild.sample = (SEQ,)\n",
        "SEQ = 64\n(SEQ, *_), _ = (32, 1), 2\nbuild.sample = (*_, SEQ)\n",
        "SEQ = 64\n_, *SEQ = 32, 1\nbuild.sample = SEQ\n",
        "SEQ, WORDS = sizes()\nbuild.sample = (SEQ,)\n",
        "SIZES = [64]\nSIZES.append(2)\nbuild.sample = SIZES\n",
        "if True:\n    build.sample = (64,)\n",
        "build.num_values = len('abc')\n",
    ],
)
def test_what_would_need_the_file_to_run_is_refused_and_not_passed_over(tmp_path: Path, lines: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"def build(): pass\n{lines}")
    line = 1 + lines.count("\n")
    message = rf"mine\.py, line {line}: build\.(sample|num_values) must be plain values, .* without running the file$"
    with pytest.raises(ConfigError, match=message):
        own_code(f"{path}:build")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{FILE}:smal", "did you mean 'small'"),
        ("nowhere.py:build", "there is no file"),
        ("no.such.module:build", "no module no.such.module is installed"),
        (f"{FILE}:small#00000000", "was changed since"),
    ],
)
def test_what_is_not_there_is_one_line(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        models[name]


def test_another_text_is_another_model(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def build(): pass\n")
    first = models[f"{path}:build"].name
    assert models[first].name == first
    path.write_text("def build(): return 1\n")
    assert models[f"{path}:build"].name != first
    with pytest.raises(ConfigError, match="was changed since"):
        models[first]


def test_a_file_that_it_names_is_part_of_what_it_is(tmp_path: Path) -> None:
    path, table = tmp_path / "mine.py", tmp_path / "table.csv"
    path.write_text("def make(train): pass\nmake.files = ['table.csv']\n")
    with pytest.raises(ConfigError, match=r"make\.files in .* names .*table\.csv, which is no file"):
        own_code(f"{path}:make")
    table.write_text("1,2\n")
    first = own_code(f"{path}:make").name
    assert own_code(first).name == first
    table.write_text("1,2\n3,4\n")
    with pytest.raises(ConfigError, match="or a file that it names, was changed since"):
        own_code(first)
    path.write_text("def make(train): pass\nmake.files = 'table.csv'\n")
    with pytest.raises(ConfigError, match="must be a list of names of files"):
        own_code(f"{path}:make")


def test_both_ways_to_name_a_function_build_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(FILE).parents[1])
    sizes = [
        sum(p.numel() for p in models[name].build().parameters())
        for name in ("workloads.own_models:small", "workloads/own_models.py:small", f"{FILE}:small")
    ]
    assert sizes == [323, 323, 323]


def test_what_fails_says_so() -> None:
    with pytest.raises(ConfigError, match="fails: ValueError: no such layer"):
        models[f"{FILE}:broken"].build()
    with pytest.raises(ConfigError, match=r"must return a torch\.nn\.Module, and returns a str"):
        models[f"{FILE}:text"].build()
    with pytest.raises(ConfigError, match=r"must say what a sample of silent is: silent\.sample ="):
        sample_of(f"{FILE}:silent")


def test_a_run_of_both_trains_and_is_scored() -> None:
    case = make_case(
        model=f"{FILE}:small", dataset=f"{FILE}:squares", evaluate=True, steps=60, batch_size=10, lr=0.1, scheme="ddp"
    )
    check_case(case)
    losses: list[float | None] = []
    result = train(case, lambda record: losses.append(record.loss), ssfx.attach)
    assert losses[-1] is not None
    assert losses[0] is not None
    assert losses[-1] < losses[0] / 2
    assert result.metrics["top1"] is not None
    assert result.metrics["top1"] > 0.5


@pytest.mark.parametrize(
    ("words", "trained"),
    [
        ("", (5, "adam", 0.001)),
        ("batch_size=7 lr=0.1", (7, "adam", 0.1)),
        ("optimizer=sgd", (5, "sgd", 0.01)),
        ("workload=text_gpt2", (8, "adamw", 0.001)),
    ],
)
def test_a_run_trains_as_the_file_says_where_the_command_does_not(words: str, trained: tuple[int, str, float]) -> None:
    (case,) = resolve_job([f"model={FILE}:small", "dataset=synthetic", "scheme=ddp", *words.split()]).cases
    assert (case.batch_size, case.optimizer, case.lr) == trained


def test_a_model_that_does_not_take_a_batch_is_named_with_the_data_set() -> None:
    case = make_case(model=f"{FILE}:small", dataset="digits", steps=1, batch_size=10, scheme="ddp")
    said = r"own_models\.py:small fails on a batch of dataset=digits, 10x1x32x32: (addmm: )?mat1 and mat2 shapes cannot"
    with pytest.raises(RunError, match=said):
        train(case, lambda _: None, ssfx.attach)


def test_a_data_set_of_ones_own_has_a_fingerprint_and_may_hold_nothing_out(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    text = "import torch\ndef make(train):\n    return [(torch.ones(2) * {}, i) for i in range(9)] if train else None\n"
    path.write_text(text.format(1))
    data = datasets.build(f"{path}:make")
    before = data.fingerprint()
    inputs, targets = data.train_loader(0, 1, 3, 0)[0]
    assert (inputs.shape, targets.shape) == ((3, 2), (3,))
    with pytest.raises(RunError, match="returns nothing for train=False"):
        data.evaluate(torch.nn.Linear(2, 2))
    path.write_text(text.format(2))
    assert datasets.build(f"{path}:make").fingerprint() != before


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ("[{'input_ids': 1, 'labels': 2}]", "must give samples .* its first is {'input_ids': 1, 'labels': 2}$"),
        ("torch.zeros(3)", r"must give samples .* its first is tensor\(0\.\)$"),
        ("[torch.zeros(9, 9)]", r"must give samples .* its first is tensor.*$"),
        ("[(1, 2, 3)]", r"must give samples .* its first is \(1, 2, 3\)$"),
        ("[]", "fails with train=True: IndexError"),
    ],
)
def test_a_sample_that_is_no_pair_is_told_with_what_it_is(tmp_path: Path, samples: str, said: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"import torch\ndef make(train): return {samples}\n")
    with pytest.raises(ConfigError, match=said) as caught:
        datasets.build(f"{path}:make").samples(train=True)
    assert "\n" not in str(caught.value)


def test_more_ranks_than_held_out_samples_agree_on_what_they_add_up(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import torch\ndef make(train):\n    return [(torch.ones(2), i % 2) for i in range(3)]\n")
    data, model = datasets.build(f"{path}:make"), torch.nn.Linear(2, 2)
    shares = [data.tally(model, rank, 4) for rank in range(4)]
    assert {tuple(sorted(share)) for share in shares} == {("right1", "samples")}
    assert [share["samples"] for share in shares] == [1, 1, 1, 0]
    assert sum(share["right1"] for share in shares) == data.tally(model, 0, 1)["right1"]


def test_its_work_is_counted_once_and_plans_and_simulations_rest_on_it() -> None:
    name = f"{FILE}:small"
    work = model_work(name)
    assert sorted(spec.shape for spec in work.tensors) == [(3,), (3, 20), (20,), (20, 12)]
    assert work.flops()[0] == 2 * (12 * 20 + 20 * 3)
    assert (work.batch_size, work.optimizer, work.inputs) == (5, "adam", "3x2x2 images")
    assert resolve_plan([f"model={name}", "scheme=ddp", "cluster=16gpu"]).model == name
    [case] = resolve_simulations([f"model={name}", "scheme=ddp", "cluster=16gpu"])
    assert (case.batch_size, case.optimizer) == (5, "adam")
    with pytest.raises(ConfigError, match=r"cannot be counted: .*silent\.sample"):
        model_work(f"{FILE}:silent")


def test_a_run_without_a_data_set_is_of_synthetic_samples() -> None:
    found = resolve_job([f"model={FILE}:small", "scheme=ddp", "world_size=1", "device=cpu"])
    assert found.cases[0].model == models[f"{FILE}:small"].name
    assert found.cases[0].dataset == f"synthetic(model={found.cases[0].model})"
    inputs, targets = datasets.build(found.cases[0].dataset).train_loader(0, 1, 4, 0)[0]
    assert inputs.shape == (4, 3, 2, 2)
    assert set(targets.tolist()) <= {0, 1, 2}
