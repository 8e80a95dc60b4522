"""The three commands of docs/advise.md: the second and the third give an answer about its example of an own model."""

import json
import re

import pytest
from docs.markdown import ROOT, python_blocks

from ssfx.cli import main


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
    assert re.search(r"^ANSWER +(Yes|No|Too close to call)\. ", out, flags=re.MULTILINE)
    assert all(f"\n{group} " in out for group in ("faster", "indistinguishable", "slower"))
