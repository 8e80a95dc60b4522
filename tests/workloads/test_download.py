"""data.download=true: which function of which library fetches what, and where to; there is no network here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from workloads import tiny_files

from ssfx.cli import main
from ssfx.core.errors import RunError
from ssfx.lab.workloads import datasets
from ssfx.lab.workloads.nets.torchvision_import import import_torchvision

REFUSED = OSError("Network is unreachable")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SSFX_DATA", str(tmp_path))
    monkeypatch.setenv("SSFX_DOWNLOAD", "")
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path / "results"))
    return tmp_path


def run(name: str) -> int:
    """Ask for a run of the workload, which downloads before anything else, and start nothing."""
    return main(["run", "--dry-run", f"workload={name}", "scheme=ddp", "device=cpu", "data.download=true"])


@pytest.mark.parametrize(("kind", "workload"), [("CIFAR10", "resnet18_cifar10"), ("CIFAR100", "vgg19_cifar100")])
def test_cifar_comes_from_torchvision(root: Path, monkeypatch: pytest.MonkeyPatch, kind: str, workload: str) -> None:
    calls = []

    def fetch(where: str, **options: Any) -> None:
        calls.append((where, options))
        tiny_files.cifar(root, kind.lower())

    monkeypatch.setattr(import_torchvision().datasets, kind, fetch)
    assert run(workload) == 0
    assert calls == [(str(root), {"download": True})]
    assert run(workload) == 0
    assert len(calls) == 1  # what is there is not fetched again


class _Table:
    def __init__(self, part: str) -> None:
        self.part = part

    def to_parquet(self, path: str) -> None:
        Path(path).write_text(self.part)


@pytest.mark.parametrize(
    ("dataset", "asked", "folder", "tokenizer"),
    [
        ("wikitext2", ("Salesforce/wikitext", "wikitext-2-v1"), "wikitext-2", None),
        ("wikitext103", ("Salesforce/wikitext", "wikitext-103-raw-v1"), "wikitext-103", "openai-community/gpt2"),
        ("wmt16(tokenizer=bpe)", ("wmt/wmt16", "de-en"), "wmt16", None),
        ("squad", ("rajpurkar/squad", None), "squad", "google-bert/bert-base-uncased"),
    ],
)
def test_tables_come_from_the_library_datasets(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    dataset: str,
    asked: tuple[str, str | None],
    folder: str,
    tokenizer: str | None,
) -> None:
    import datasets as library
    import tokenizers

    calls: list[Any] = []

    def load(*arguments: str | None) -> dict[str, _Table]:
        calls.append(arguments)
        return {part: _Table(part) for part in ("train", "validation", "test")}

    class Saved:
        @staticmethod
        def from_pretrained(name: str) -> Any:
            calls.append(name)
            return Saved()

        def save(self, path: str) -> None:
            Path(path).write_text("{}")

    monkeypatch.setattr(library, "load_dataset", load)
    monkeypatch.setattr(tokenizers, "Tokenizer", Saved)
    data = datasets.build(dataset)
    data.download()
    assert data.missing() == ""
    assert calls == [asked, *([tokenizer] if tokenizer else [])]
    assert (root / folder / "train.parquet").read_text() == "train"


def _fails(*_: Any, **__: Any) -> Any:
    raise REFUSED


@pytest.mark.parametrize("workload", ["vgg19_cifar100", "bert_large_squad", "lstm_wikitext2", "gnmt8_wmt16"])
def test_without_a_network_it_is_one_line(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], workload: str
) -> None:
    import datasets as library

    monkeypatch.setattr(import_torchvision().datasets, "CIFAR100", _fails)
    monkeypatch.setattr(library, "load_dataset", _fails)
    assert run(workload) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "cannot be downloaded" in line
    assert "Network is unreachable" in line


def test_what_nobody_may_fetch_is_refused(root: Path) -> None:
    with pytest.raises(RunError, match="dataset=imagenet cannot be downloaded by ssfx; dataset=imagenet needs"):
        datasets.build("imagenet").download()
