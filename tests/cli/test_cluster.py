"""`ssfx cluster`: from a log to an answer in two commands."""

import pytest
from refusals import output, refusal
from systems.nccl_text import as_text

from ssfx.cli import main
from ssfx.core.component_file import component_file
from ssfx.perf_model.exchange_tables import ExchangeTable, tables_of


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (found,) = [
        one
        for one in tables_of(component_file("cluster", "snellius_h100")["exchanges"])
        if (one.collective, one.ranks) == ("all_reduce", 8)
    ]
    (tmp_path / "all_reduce.log").write_text(as_text(found, device="NVIDIA H100"))
    return found


def test_a_log_becomes_a_cluster_that_is_planned_on(log, tmp_path, capsys):
    out = output(capsys, "cluster", "import", "all_reduce.log")
    assert "all_reduce.yaml: 2 nodes of 4 h100" in out
    assert "all_reduce measured (8 ranks on 2 nodes, 8 B to 8 GiB, NCCL 2.19.3)" in out
    assert "Next: ssfx advise model=resnet50 cluster=all_reduce.yaml" in out
    for verb in ("plan", "simulate"):
        out = " ".join(output(capsys, verb, "model=resnet50", "cluster=all_reduce.yaml", "scheme=ddp").split())
        assert "all_reduce measured (8 ranks on 2 nodes" in out
        assert "all others ring and tree formulas" in out


def test_what_is_written_can_be_shown_and_checked(log, tmp_path, capsys):
    first = output(capsys, "cluster", "import", "all_reduce.log", "--name", "mine")
    assert output(capsys, "cluster", "show", "mine.yaml") in first
    out = " ".join(output(capsys, "cluster", "check", "mine.yaml").split())
    assert "every second size held out: median" in out
    assert "not monotone: 16 B takes less than a smaller message" in out
    assert "mine.yaml can be planned on: 8 ranks" in out


@pytest.mark.parametrize("name", ["64gpu", "polaris", "rtx2080ti_pair"])
def test_shipped_clusters_are_shown(name, capsys):
    out = output(capsys, "cluster", "show", name)
    assert out.startswith(f"{name}: ")
    assert ("measured" in out) == (name != "64gpu")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["import", "none.log"], "none.log cannot be read: No such file or directory"),
        (["import", "all_reduce.log", "--name", "a/b"], "--name a/b must be the name of a file, without its folder"),
        (["show", "polari"], "unknown cluster 'polari'; did you mean 'polaris'?"),
        (["check", "none.yaml"], "cluster=none.yaml: there is no file"),
    ],
)
def test_wrong_words_are_one_line(words, text, log, capsys):
    assert text in refusal(capsys, "cluster", *words)


def test_what_does_not_reach_a_message_is_said_with_what_to_do(log, tmp_path, capsys):
    short = ExchangeTable("all_reduce", 8, 4, log.nbytes[:10], log.us[:10])
    (tmp_path / "short.log").write_text(as_text(short, device="NVIDIA H100"))
    assert main(["cluster", "import", "short.log"]) == 0
    capsys.readouterr()
    assert main(["simulate", "model=resnet50", "cluster=short.yaml", "scheme=ddp"]) == 2
    err = capsys.readouterr().err
    assert "more than 8 times beyond what is known on short.yaml: 8 .. 4,096 was measured; import a log" in err
