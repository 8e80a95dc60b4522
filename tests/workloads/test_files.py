"""Data sets in the user's files: the formats of the real ones, what is made of them, and what is said without them."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from workloads import tiny_files

from ssfx.core.errors import ConfigError, RunError
from ssfx.lab.workloads import datasets
from ssfx.lab.workloads.base import Dataset
from ssfx.lab.workloads.catalog.squad_files import read_questions
from ssfx.lab.workloads.metrics.tally import added, quality_of

TRAINED = "tokenizer=bpe,vocabulary=400"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SSFX_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def fresh(spec: str) -> Dataset:
    """Return a new data set: those of the registry remember what they read."""
    entry, options = datasets._resolve(spec, {})
    return entry.cls(options)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", ["cifar10", "cifar100"])
def test_cifar_is_read_normalised_and_augmented_by_sample(root: Path, kind: str) -> None:
    tiny_files.cifar(root, kind)
    data = fresh(kind)
    assert data.missing() == ""
    count = 12 if kind == "cifar100" else 60
    batches = data.train_loader(0, 1, count, 0)
    images, labels = batches[0]
    assert images.shape == (count, 3, 32, 32)
    assert images.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert abs(float(images.mean())) < 0.5
    plain = data.samples(train=False)
    assert torch.equal(plain[3][0], plain[3][0])  # held-out images are not augmented
    assert not torch.equal(batches[0][0], batches[1][0])


def test_data_says_which_part_of_the_published_set_it_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_files.cifar(root, "cifar10")
    tiny_files.wikitext(root, "wikitext-2")
    images, words = fresh("cifar10"), fresh("wikitext2_small")
    assert images.part() == "trained on 60 of the 50,000 published training samples or words of cifar10"
    assert f"of the {2_088_628:,} published" in words.part()
    monkeypatch.setattr(type(images), "published", 60)
    assert images.part() == ""


def test_a_batch_is_the_same_with_workers_without_and_after_a_jump(root: Path) -> None:
    tiny_files.cifar(root)
    data = fresh("cifar100")
    alone = data.train_loader(1, 2, 3, 7)
    expected = [alone[index] for index in range(5)]  # more than two epochs of two batches
    state = torch.get_rng_state()
    helped = data.train_loader(1, 2, 3, 7, workers=1)
    for index in (0, 0, 1, 2, 4, 3):
        for one, other in zip(helped[index], expected[index], strict=True):
            assert torch.equal(one, other)
    assert torch.equal(state, torch.get_rng_state())  # or dropout would differ with the number of workers
    other_rank = data.train_loader(0, 2, 3, 7)
    assert not torch.equal(other_rank[0][0], expected[0][0])


def test_an_image_folder_is_cut_to_the_size_of_the_models(root: Path) -> None:
    tiny_files.image_folder(root)
    data = fresh("imagenet")
    images, labels = data.train_loader(0, 1, 6, 0)[0]
    assert images.shape == (6, 3, 224, 224)
    assert sorted(labels.tolist()) == [0, 0, 0, 1, 1, 1]
    before = data.fingerprint()
    assert before == fresh("imagenet").fingerprint()
    (root / "imagenet/train/n01440764/n01440764_0.JPEG").unlink()
    assert fresh("imagenet").fingerprint() != before


def test_answers_of_squad_are_found_again_in_its_windows(root: Path) -> None:
    tiny_files.squad(root)
    tiny_files.word_piece(root / "squad/tokenizer")
    data = fresh("squad(seq_len=48,stride=16)")
    questions = read_questions(sorted((root / "squad").glob("train*")))
    windows = data._arrays
    found = 0
    for number in range(len(windows["train_inputs"])):
        first, last = windows["train_spans"][number]
        tokens, mask, segments = windows["train_inputs"][number]
        assert tokens[0] == 2  # [CLS]
        assert (tokens == 3).sum() == 2  # [SEP]
        assert ((tokens == 0) == (mask == 0)).all()
        assert segments[: int((tokens == 3).argmax()) + 1].max() == 0
        if first:
            question = questions[windows["train_question"][number]]
            start, end = windows["train_offsets"][number, first, 0], windows["train_offsets"][number, last, 1]
            assert question.context[start:end] == question.answers[0][0]
            found += 1
    assert found >= len(questions)
    inputs, spans = data.train_loader(0, 1, 4, 0)[0]
    assert (inputs.shape, spans.shape) == ((4, 3, 48), (4, 2))


def test_every_word_of_a_context_is_in_a_window_however_far_windows_should_be_apart(root: Path) -> None:
    tiny_files.squad(root)
    tiny_files.word_piece(root / "squad/tokenizer")
    wide, near = (fresh(f"squad(seq_len=24,stride={stride})")._arrays for stride in (128, 1))
    for number in set(near["dev_question"].tolist()):
        places = [
            set(map(tuple, of["dev_offsets"][of["dev_question"] == number].reshape(-1, 2))) for of in (wide, near)
        ]
        assert places[0] == places[1]
    assert len(wide["dev_inputs"]) < len(near["dev_inputs"])


class _Knows(torch.nn.Module):
    """Points at the right answer of every held-out window, or always at the first word of the context."""

    def __init__(self, windows: dict, right: bool) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.spans = {tuple(w[0].tolist()): s for w, s in zip(windows["dev_inputs"], windows["dev_spans"], strict=True)}
        self.right = right

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores = torch.zeros(len(inputs), 2, inputs.shape[-1])
        for row, score in zip(inputs, scores, strict=True):
            first, last = self.spans[tuple(row[0].tolist())] if self.right else (int(row[2].argmax()),) * 2
            score[0, first] += 5
            score[1, last] += 5
        return scores + self.weight


def test_squad_scores_known_readers(root: Path) -> None:
    tiny_files.squad(root)
    data = fresh(f"squad(seq_len=48,stride=16,{TRAINED})")
    assert data.evaluate(_Knows(data._arrays, right=True)) == {"exact_match": 1.0, "f1": 1.0}
    assert data.evaluate(_Knows(data._arrays, right=False))["exact_match"] == 0


@pytest.mark.parametrize("parquet", [False, True], ids=["tokens", "parquet"])
def test_wikitext_in_words(root: Path, parquet: bool) -> None:
    tiny_files.wikitext(root, "wikitext-2", parquet)
    data = fresh("wikitext2(seq_len=5)")
    inputs, targets = data.train_loader(0, 1, 2, 0)[0]
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    text = data._arrays["train"]
    assert len(text) == (3 + 1) + 1 + 60 * (14 + 1)  # heading, blank line, sentences, each with its end
    assert (text[4:5] == text[-1]).all()


def test_both_forms_of_a_text_are_the_same_tokens(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for parquet in (False, True):
        monkeypatch.setenv("SSFX_DATA", str(tmp_path / str(parquet)))
        tiny_files.wikitext(tmp_path / str(parquet), "wikitext-103", parquet)
        data = fresh(f"wikitext103(seq_len=8,{TRAINED})")
        found.append(data._arrays["train"].tolist())
        assert max(found[-1]) < 400
    assert found[0] == found[1]


def test_perplexity_of_a_text_by_a_model_that_knows_nothing(root: Path) -> None:
    tiny_files.wikitext(root, "wikitext-103")
    data = fresh(f"wikitext103(seq_len=8,{TRAINED})")

    class Ignorant(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return torch.zeros(*tokens.shape, 400) + self.weight

    found = data.evaluate(Ignorant())
    assert found["perplexity"] == pytest.approx(400, rel=1e-4)
    assert found["perplexity_per_word"] > 400  # a word is one token or more


def test_pairs_of_sentences(root: Path) -> None:
    tiny_files.wmt16(root)
    data = fresh(f"wmt16(seq_len=24,{TRAINED})")
    inputs, targets = data.train_loader(0, 1, 4, 0)[0]
    assert inputs.shape == (4, 2, 24)
    assert (inputs[:, 1, 0] == 1).all()
    for given, wanted in zip(inputs[:, 1], targets, strict=True):
        length = int((wanted != -100).sum())
        assert wanted[length - 1] == 2  # the end
        assert torch.equal(given[1:length], wanted[: length - 1])
    with pytest.raises(RunError, match="no pair of at most 3 tokens"):
        fresh(f"wmt16(seq_len=3,{TRAINED})").train_loader(0, 1, 1, 0)


def test_pairs_lack_no_sentence(root: Path) -> None:
    tiny_files.wmt16(root)
    both = [("null", "NA"), ("", "nothing"), ("nichts", None), ('ein "Wort', 'a "word')]
    rows = [{"translation": {"de": de, "en": en}} for de, en in both]
    tiny_files._table(root / "wmt16/validation-00000-of-00001.parquet", rows)
    assert list(fresh(f"wmt16(seq_len=24,{TRAINED})")._pairs("validation")) == [both[0], both[3]]


class _Translates(torch.nn.Module):
    """Writes the right translation of every held-out sentence, or the same token for ever."""

    def __init__(self, pairs: list[list[list[int]]], right: bool) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.known = {tuple(source): target for source, target in pairs}
        self.right = right

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores = torch.zeros(len(inputs), inputs.shape[-1], 403)
        for row, score in zip(inputs.tolist(), scores, strict=True):
            for at, token in enumerate(self.known[tuple(row[0])]):
                score[at, token if self.right else 70] = 5.0
        return scores + self.weight


def test_bleu_of_known_translators(root: Path) -> None:
    tiny_files.wmt16(root)
    data = fresh(f"wmt16(seq_len=24,{TRAINED})")
    pairs = data._arrays["validation"].tolist()
    right = data.evaluate(_Translates(pairs, right=True))
    assert right["bleu"] == pytest.approx(100)
    assert data.evaluate(_Translates(pairs, right=False))["bleu"] < 1
    halves = [data.tally(_Translates(pairs, right=True), rank, 2) for rank in range(2)]
    assert quality_of(added(*halves)) == pytest.approx(right)
    nothing = data.tally(_Translates(pairs, right=True), len(pairs), len(pairs) + 1)  # a rank without any pair
    assert quality_of(added(halves[0], added(halves[1], nothing))) == pytest.approx(right)


def test_passages_for_pretraining(root: Path) -> None:
    (root / "pretraining").mkdir()
    (root / "pretraining/a.txt").write_text("".join(f"{tiny_files.sentence(n)}\n" for n in range(80)))
    tiny_files.word_piece(root / "pretraining/tokenizer")
    data = fresh("pretraining(seq_len=16)")
    inputs, targets = data.train_loader(0, 1, 20, 0)[0]
    assert (inputs.shape, targets.shape) == ((20, 3, 16), (20, 17))
    assert 0 < int(targets[:, 0].sum()) < 20
    words, tokens = targets[:, 1:], inputs[:, 0]
    hidden = words != -100
    assert bool(hidden.any(dim=1).all())
    assert bool((tokens[hidden] == 4).any())  # [MASK]
    assert not bool(((words == 2) | (words == 3)).any())  # [CLS] and [SEP] are not to be found
    assert 0.05 < float(hidden.float().mean()) < 0.35


def test_a_tokenizer_of_another_model_is_refused(root: Path) -> None:
    tiny_files.squad(root)
    special = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tiny_files.word_piece(root / "squad/tokenizer", [*special, *(f"w{n}" for n in range(30996))])
    with pytest.raises(ConfigError, match="31000 tokens, and the model knows 30522"):
        fresh("squad").train_loader(0, 1, 1, 0)
    tiny_files.word_piece(root / "squad/tokenizer", [*special, "a"])
    with pytest.raises(ConfigError, match=r"has no \[PAD\]"):
        fresh("squad").train_loader(0, 1, 1, 0)


def test_damaged_files_are_one_line(root: Path) -> None:
    tiny_files.cifar(root)
    (root / "cifar-100-python/train").write_bytes(b"nothing")
    with pytest.raises(RunError, match="dataset=cifar100 cannot be read"):
        fresh("cifar100").train_loader(0, 1, 1, 0)
    tiny_files.wmt16(root)
    tables = sorted((root / "wmt16").glob("train*"))
    with pytest.raises(RunError, match="no table of SQuAD"):
        read_questions(tables)


@pytest.mark.parametrize("name", [entry.name for entry in datasets if not entry.cls.here])
def test_missing_files_are_named_with_their_place(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = fresh(name)
    assert f"in {root / data.folder}" in data.missing()
    assert data.wanted[0][0] in data.missing()
    monkeypatch.delenv("SSFX_DATA")
    assert "data.root=DIR or SSFX_DATA=DIR" in data.missing()
    assert "\n" not in data.missing()
    with pytest.raises(RunError, match="needs"):
        data.train_loader(0, 1, 1, 0)


def test_a_run_without_its_files_ends_at_once_and_without_torch(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom ssfx.cli import main\n"
        "try:\n    main(['run', 'workload=bert_large_squad', 'world_size=1'])\n"
        "except SystemExit as end:\n    assert end.code == 2, end.code\n"
        "assert 'torch' not in sys.modules and 'datasets' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "train*.parquet, validation*.parquet, tokenizer/tokenizer.json" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
