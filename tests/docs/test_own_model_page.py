"""The three commands of docs/advise.md: the second and the third give an answer about its example of an own model."""

import json
import re

import pytest
from docs.markdown import ROOT, python_blocks

from experiments.common.claims.verdicts import COLUMNS
from ssfx.cli import main
from ssfx.config.plans import resolve_plan


@pytest.mark.slow
def test_the_commands_of_the_page_answer(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs/advise.md").read_text()
    commands = re.findall(r"^    ssfx (profile|advise) (.*)$", page, flags=re.MULTILINE)
    script = next(block for block in python_blocks(ROOT / "docs/advise.md") if "def build_model" in block)
    (tmp_path / "mytrain.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    (first, profile), (second, advice) = commands[:2]
    assert (first, second) == ("profile", "advise")
    assert main([first, *profile.split()]) == 0
    assert json.loads((tmp_path / "mine.json").read_text())["batch_size"] == 32
    capsys.readouterr()
    assert main([second, *advice.split()]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^(YES|NO|CLOSE) ", out, flags=re.MULTILINE)
    assert all(f"\n{label} " in out for label in ("NOW", "FASTER", "QUALITY", "FITS", "SURE?", "MORE"))


def test_the_words_for_nodes_of_eight_h100_are_sixty_four_with_a_card_each():
    page = (ROOT / "docs/clusters.md").read_text().partition("## Nodes of eight H100")[2]
    (words,) = re.findall(r"^    ssfx plan (.*)$", page, flags=re.MULTILINE)
    cluster = resolve_plan(words.split()).cluster
    assert (cluster.nodes, cluster.devices_per_node, cluster.nics_per_node) == (8, 8, 8)
    assert (cluster.device, cluster.inter.gbps, cluster.intra.gbps) == ("h100", 400, 3600)
    for name in ("aws_p5", "gcp_a3_mega", "snellius_h100"):
        assert f"`{name}`" in page
        assert resolve_plan(["model=gpt2", f"cluster={name}"]).cluster.device == "h100"


def test_pages_call_verdicts_as_the_screen_does():
    table = (ROOT / "docs/experiments.md").read_text().partition("## Verdicts on claims")[2]
    words = re.findall(r"^\| (\w[\w ]*) \| (?!when)", table.partition("\n## ")[0], flags=re.MULTILINE)
    assert words[:6] == [one for one in COLUMNS if one != "not attempted"]
