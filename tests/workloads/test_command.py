"""`ssfx run` with a paper's recipe: what it says without the data, and the quality it prints and keeps with them."""

import json
from pathlib import Path

import pytest
from workloads import own_models, tiny_files

from ssfx.cli import main

OWN = own_models.__file__


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SSFX_DATA", "SSFX_DOWNLOAD"):
        monkeypatch.setenv(name, "")  # so that what a command sets is taken back
        monkeypatch.delenv(name)
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_recipe_without_its_data_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", "model=bert_large", "dataset=squad", "preset=paper"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("ssfx: dataset=squad needs train*.parquet, validation*.parquet, tokenizer/tokenizer.json")
    assert not (tmp_path / "results").exists()


def trained(words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> tuple[str, list[dict]]:
    """Run one command on two ranks; return the table at its end and the metrics of its rows."""
    common = ["preset=paper", f"data.root={tmp_path}", "world_size=2", "device=cpu", "scheme=ddp,ssfusion_oi"]
    assert main(["run", *words, *common]) == 0
    rows = [json.loads(path.read_text()) for path in (tmp_path / "results/runs").glob("*/row.json")]
    assert {row["case"]["scheme"] for row in rows} == {"ddp", "ssfusion_oi"}
    return capsys.readouterr().out, [row["metrics"] for row in rows]


@pytest.mark.slow
@pytest.mark.torchrun
@pytest.mark.nightly
def test_ten_questions_end_with_exact_match_and_f1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tiny_files.squad(tmp_path)
    tiny_files.word_piece(tmp_path / "pieces")
    words = [
        "workload=bert_large_squad",
        f"model={OWN}:reader",
        "dataset.seq_len=48",
        "dataset.stride=16",
        f"dataset.tokenizer={tmp_path}/pieces",
        "steps=24",
        "lr=0.01",
    ]
    table, rows = trained(words, capsys, tmp_path)
    assert table.count("exact match ") == table.count("F1 ") == len(rows)
    for metrics in rows:
        assert 0 <= metrics["exact_match"] <= metrics["f1"] <= 1
        assert f"exact match {metrics['exact_match']:.1%}, F1 {metrics['f1']:.1%}" in table


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.torchrun
def test_pairs_of_sentences_end_with_perplexity_and_bleu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tiny_files.wmt16(tmp_path)
    words = [
        "workload=gnmt8_wmt16",
        f"model={OWN}:translator",
        "dataset.seq_len=24",
        "dataset.tokenizer=bpe",
        "dataset.vocabulary=400",
        "batch_size=4",
        "steps=24",
        "lr=0.02",
    ]
    table, rows = trained(words, capsys, tmp_path)
    for metrics in rows:
        assert 0 <= metrics["bleu"] <= 100
        assert f"perplexity {metrics['perplexity']:.2f}, BLEU {metrics['bleu']:.1f}" in table
