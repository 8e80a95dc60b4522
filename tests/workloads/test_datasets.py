import os
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ssfx.core.errors import ConfigError, RunError
from ssfx.lab.workloads import datasets
from ssfx.lab.workloads.catalog import generated_questions as generated
from ssfx.lab.workloads.catalog.digits import Digits
from ssfx.lab.workloads.catalog.stdlib_text import StdlibText, StdlibTextOptions
from ssfx.lab.workloads.stream import SampleStream

SMALL_TEXT = "stdlib_text(seq_len=16,max_bytes=400000,held_out_bytes=4096)"


def _stream(num_samples: int, rank: int, world_size: int, batch_size: int, seed: int) -> SampleStream:
    def gather(samples: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = torch.from_numpy(samples)
        return numbers, numbers

    return SampleStream(
        gather=gather, num_samples=num_samples, rank=rank, world_size=world_size, batch_size=batch_size, seed=seed
    )


@given(world_size=st.integers(1, 5), batch_size=st.integers(1, 6), extra=st.integers(0, 40), seed=st.integers(0, 2**31))
def test_ranks_share_no_sample_within_an_epoch(world_size: int, batch_size: int, extra: int, seed: int) -> None:
    num_samples = world_size * batch_size + extra
    streams = [_stream(num_samples, rank, world_size, batch_size, seed) for rank in range(world_size)]
    per_epoch = num_samples // (world_size * batch_size)
    assert {stream.batches_per_epoch for stream in streams} == {per_epoch}
    for epoch in range(2):
        seen = [n for s in streams for i in range(per_epoch) for n in s.samples(epoch * per_epoch + i).tolist()]
        assert len(seen) == len(set(seen)) == per_epoch * world_size * batch_size
        assert set(seen) <= set(range(num_samples))


@given(
    num_samples=st.integers(8, 60),
    indices=st.lists(st.integers(0, 100), min_size=1, max_size=8),
    seed=st.integers(0, 9),
)
def test_a_batch_depends_on_its_index_alone(num_samples: int, indices: list[int], seed: int) -> None:
    stream = _stream(num_samples, 1, 2, 4, seed)
    for index in indices:  # any order, any history
        assert stream.samples(index).tolist() == _stream(num_samples, 1, 2, 4, seed).samples(index).tolist()


def test_epochs_and_seeds_differ() -> None:
    stream, other = _stream(64, 0, 1, 64, 0), _stream(64, 0, 1, 64, 1)
    assert stream.samples(0).tolist() != stream.samples(1).tolist()
    assert stream.samples(0).tolist() != other.samples(0).tolist()


def test_too_few_samples_for_one_batch_of_all_ranks() -> None:
    with pytest.raises(ConfigError, match="needs 40 training samples, the data set has 30; use batch_size=7 or less"):
        _stream(30, 0, 4, 10, 0)


def test_digits_are_normalised_images_split_by_content() -> None:
    data = datasets.build("digits")
    assert data is datasets.build("digits")
    inputs, targets = data.train_loader(0, 1, 1400, 0)[0]
    assert inputs.shape == (1400, 1, 32, 32)
    assert inputs.dtype == torch.float32
    assert targets.dtype == torch.int64
    assert set(targets.tolist()) == set(range(10))
    assert abs(float(inputs.mean())) < 0.02
    assert abs(float(inputs.std()) - 1) < 0.02
    assert torch.equal(inputs[:, :, ::4, ::4].repeat_interleave(4, 2).repeat_interleave(4, 3), inputs)


def test_digits_fingerprint_is_stable() -> None:
    assert Digits().fingerprint() == "5a24f90ad2c3d97e"


def test_corrupt_digits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import sklearn.datasets

    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    images[0, 0] += 1
    monkeypatch.setattr(sklearn.datasets, "load_digits", lambda return_X_y: (images, labels))
    with pytest.raises(RunError, match=r"not the ones ssfx knows.*reinstall"):
        Digits().fingerprint()


def test_missing_digits_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import sklearn.datasets

    def missing(return_X_y: bool) -> None:
        raise FileNotFoundError("digits.csv.gz")

    monkeypatch.setattr(sklearn.datasets, "load_digits", missing)
    with pytest.raises(RunError, match=r"cannot be read.*reinstall"):
        Digits().train_loader(0, 1, 4, 0)


def test_text_targets_are_the_next_bytes() -> None:
    data = datasets.build(SMALL_TEXT)
    inputs, targets = data.train_loader(0, 1, 8, 0)[0]
    assert inputs.shape == targets.shape == (8, 16)
    assert inputs.dtype == torch.int64
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert 0 <= int(inputs.min()) <= int(inputs.max()) < 256


def test_text_fingerprint_follows_content_and_options() -> None:
    first = datasets.build(SMALL_TEXT).fingerprint()
    assert first == StdlibText(StdlibTextOptions(16, 400000, 4096)).fingerprint()
    assert first != StdlibText(StdlibTextOptions(17, 400000, 4096)).fingerprint()
    assert first != StdlibText(StdlibTextOptions(16, 500000, 4096)).fingerprint()


def _library(root: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(root))


def test_text_is_read_in_the_order_of_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"m{i:02}/f.py": b"text %d " % i * 100 for i in range(40)}
    _library(tmp_path, files | {"site-packages/x.py": b"no", "test/y.py": b"no", "notes.txt": b"no"}, monkeypatch)
    train, held_out = StdlibText(StdlibTextOptions())._split
    assert b"no" not in train + held_out
    assert sorted(train.split(b"\0") + held_out.split(b"\0")) == sorted([*files.values(), b"", b""])
    assert [files[name] for name in sorted(files) if files[name] in train] == train.split(b"\0")[:-1]


def test_text_stops_at_the_byte_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _library(tmp_path, {f"{i:03}.py": os.urandom(1023) for i in range(200)}, monkeypatch)
    train, held_out = StdlibText(StdlibTextOptions(max_bytes=2**16))._split
    assert len(train) + len(held_out) == 2**16


def test_no_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _library(tmp_path, {}, monkeypatch)
    with pytest.raises(RunError, match=r"no \.py files"):
        StdlibText(StdlibTextOptions()).fingerprint()
    _library(tmp_path, {"a.py": b"x = 1"}, monkeypatch)
    with pytest.raises(RunError, match="too little source"):
        StdlibText(StdlibTextOptions()).train_loader(0, 1, 1, 0)


def test_unreadable_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _library(tmp_path, {}, monkeypatch)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RunError, match="cannot read"):
        StdlibText(StdlibTextOptions()).fingerprint()


def test_bad_options() -> None:
    with pytest.raises(ConfigError, match="seq_len must be at least 1"):
        datasets.build("stdlib_text(seq_len=0)")


class _Certain(torch.nn.Module):
    """Predicts class 0, or the byte it was given, with full certainty."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.classes = classes

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        assert not self.training
        if inputs.ndim == 4:
            return torch.eye(10)[torch.zeros(len(inputs), dtype=torch.int64)] + self.weight
        return torch.zeros(*inputs.shape, self.classes) + self.weight


def test_evaluation_of_known_predictors() -> None:
    digits, text = datasets.build("digits"), datasets.build(SMALL_TEXT)
    model = _Certain(256).train()
    top1 = digits.evaluate(model)["top1"]
    assert 0.05 < top1 < 0.15
    assert text.evaluate(model)["perplexity"] == pytest.approx(256, rel=1e-5)
    assert model.training


def _found(tokens: torch.Tensor) -> list[int]:
    """Return the first and last place of the words of the kind that a question asks for."""
    first = generated._FIRST_WORD + int(tokens[0]) // generated._ASKED * generated.WORDS_PER_KIND
    places = ((first <= tokens) & (tokens < first + generated.WORDS_PER_KIND)).nonzero().flatten().tolist()
    assert places == list(range(places[0], places[-1] + 1))
    return [places[0], places[-1]]


def test_an_answer_is_the_words_of_the_kind_that_a_question_asks_for() -> None:
    data = datasets.build("generated_questions(seq_len=40,train_samples=64)")
    tokens, spans = data.train_loader(0, 1, 50, 0)[0]
    assert tokens.dtype == spans.dtype == torch.int64
    assert [_found(one) for one in tokens] == spans.tolist()
    assert len(spans[:, 0].unique()) > 15  # all over the context
    assert data.fingerprint() != datasets.build("generated_questions(seq_len=41,train_samples=64)").fingerprint()
    with pytest.raises(ConfigError, match="seq_len must be at least 21, got 20"):
        datasets.build("generated_questions(seq_len=20)")


class _Reader(torch.nn.Module):
    """Finds the answer of a question, or says that every answer is at position 0."""

    def __init__(self, able: bool) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.able = able

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores = torch.zeros(len(tokens), 2, tokens.shape[1])
        for one, score in zip(tokens, scores, strict=True):
            first, last = _found(one) if self.able else (0, 0)
            score[0, first] = score[1, last] = 1
        return scores + self.weight


def test_evaluation_of_known_readers() -> None:
    data = datasets.build("generated_questions(held_out_samples=64)")
    assert data.evaluate(_Reader(able=True)) == {"exact_match": 1, "f1": 1}
    assert data.evaluate(_Reader(able=False)) == {"exact_match": 0, "f1": 0}
