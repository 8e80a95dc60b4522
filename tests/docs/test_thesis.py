"""docs/thesis.md: its folder and its commands, as they stand there, from outside of the package."""

import csv
import os
import re
import shlex
import sys

import pytest
from docs.markdown import ROOT
from processes import finished

from experiments.common.figures.discovery import chosen, discover
from ssfx.cli import main
from ssfx.compressors import Cost
from ssfx.core.errors import ConfigError

PAGE = (ROOT / "docs" / "thesis.md").read_text()
FILES = re.findall(r"```\w+\n# (thesis/\S+)\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^    ssfx (.+)$", PAGE, re.MULTILINE)
FIGURE = (
    "from experiments.common.figures.figure import Figure\n"
    "ONE = Figure({name!r}, 'mine', lambda figure, rows, out: [], about=())\n"
)


@pytest.mark.slow
def test_a_thesis_is_done_in_one_folder(tmp_path):
    for name, text in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def ssfx(words):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "SSFX_RESULTS": str(tmp_path / "results")}
        done = finished([sys.executable, "-m", "ssfx.cli", *shlex.split(words)], cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run, draw, charged = COMMANDS
    said = ssfx(run)
    for scheme in ("ddp", r"ssfusion_oi \(sent dense\)", "halves"):
        assert re.search(rf"^{scheme} +[\d.]+ ", said, re.MULTILINE), said
    assert "1 drawn" in ssfx(draw)
    with (tmp_path / "results" / "figures" / "thesis.bars.csv").open() as file:
        lines = {line["scheme"]: float(line["step_ms"]) for line in csv.DictReader(file)}
    assert set(lines) == {"ddp", "ssfusion_oi", "halves"}
    assert all(step_ms > 0 for step_ms in lines.values())

    shown = ssfx(charged)
    assert re.search(r"^int8_thesis +0\.016", shown, re.MULTILINE)  # four kernels of 4 us
    assert "calls and bytes as the compressor itself says" in shown

    plan = "plan --plugin thesis/parts.py model=gpt2 cluster=64gpu scheme=halves compressor=int8_thesis"
    assert "no predicted time" not in ssfx(plan)


def test_a_cost_that_cannot_be_is_refused():
    assert Cost(calls=3, nbytes=12).decode_calls == 2
    for wrong in ({"calls": 0, "nbytes": 1}, {"calls": 2, "nbytes": -1}, {"calls": 2, "nbytes": 1, "segment_calls": 3}):
        with pytest.raises(ValueError, match="of a cost"):
            Cost(**wrong)


def test_a_script_that_is_no_figure_is_refused_in_a_line(tmp_path):
    def refused(text, why):
        (tmp_path / "mine.py").write_text(text)
        with pytest.raises(ConfigError, match=why):
            chosen([str(tmp_path / "mine.py")])

    refused("NAME = 'mine.one'", "has no figure: it must define a Figure")
    refused("1 / 0", "fails: ZeroDivisionError")
    refused(FIGURE.format(name=next(iter(discover()))), "is a figure of ssfx")
    with pytest.raises(ConfigError, match="there is no file"):
        chosen([str(tmp_path / "other.py")])
    (tmp_path / "mine.py").write_text(FIGURE.format(name="mine.one"))
    assert [figure.name for figure in chosen([str(tmp_path / "mine.py"), "ssfusion.fig11"])] == [
        "ssfusion.fig11",
        "mine.one",
    ]


def test_compressors_are_charged_by_a_data_sheet_without_measuring(capsys):
    assert main(["profile", "compressors", "topk", "--on", "A100"]) == 0
    out = capsys.readouterr().out
    assert "nominal on NVIDIA A100 80GB PCIe" in out
    assert [line.split()[0] for line in out.splitlines()[2:-1]] == ["topk"]
    assert main(["profile", "compressors", "topkk", "--on", "a100"]) == 2
    assert "did you mean 'topk'" in capsys.readouterr().err
