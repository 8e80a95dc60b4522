"""Exit codes, help, and what each command may import, which is what its start-up time consists of."""

import re
import subprocess
import sys

import click
import pytest
from refusals import output, refusal

from ssfx.cli import cli, main
from ssfx.config.overrides import read
from ssfx.core.errors import RunError
from ssfx.lab.config import cases

VERBS = (
    "advise",
    "simulate",
    "plan",
    "profile",
    "cluster",
    "list",
    "run",
    "show",
    "figures",
    "report",
    "status",
    "validate",
    "cancel",
    "doctor",
)


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("verb", [(), *((verb,) for verb in VERBS)])
def test_help_fits_on_one_screen(verb, flag, capsys):
    out = output(capsys, *verb, flag)
    assert out.startswith("Usage: ssfx")
    assert len(out.splitlines()) <= 24
    assert max(map(len, out.splitlines())) <= 100


def test_no_command_shows_the_help(capsys):
    assert "Commands:" in output(capsys)


def test_help_opens_with_three_examples_that_can_be_read_and_names_every_verb(capsys):
    main(["--help"])
    out = capsys.readouterr().out
    examples = [re.split(r"\s{2,}", line.strip())[0].split() for line in out.splitlines()[2:5]]
    assert [words[:2] for words in examples] == [["ssfx", "advise"], ["ssfx", "simulate"], ["ssfx", "run"]]
    for _, _, *words in examples:
        read([word for word in words if not word.startswith("-")])
    assert cli.list_commands(click.Context(cli)) == list(VERBS)
    assert all(f"\n  {verb} " in out for verb in VERBS)


def test_a_failed_run_is_exit_1_and_one_line(monkeypatch, capsys):
    def fail(words):
        raise RunError("rank 1 died\nof something")

    monkeypatch.setattr("ssfx.lab.config.cases.resolve_job", fail)
    assert main(["run"]) == 1
    assert capsys.readouterr().err == "ssfx: rank 1 died of something\n"


def test_ctrl_c_is_exit_130(monkeypatch, capsys):
    def interrupted(words):
        raise KeyboardInterrupt

    monkeypatch.setattr("ssfx.lab.config.cases.resolve_job", interrupted)
    assert main(["run"]) == 130
    assert capsys.readouterr().err.strip().startswith("ssfx: interrupted; finished runs are kept")


def test_a_bug_is_not_hidden(monkeypatch):
    def broken(words):
        raise ZeroDivisionError

    monkeypatch.setattr(cases, "read", broken)
    with pytest.raises(ZeroDivisionError):
        main(["run"])


HEAVY = {"torch", "pandas", "matplotlib", "rich", "numpy", "psutil", "hydra", "yaml", "numpy.ma"}
"""Packages that take a noticeable part of a second, or that only runs need."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "needed"),
    [
        (["--help"], set()),
        (["--version"], set()),
        (["list"], set()),
        (["status"], {"hydra", "yaml", "numpy", "numpy.ma"}),  # what figures compute is judged anew
        (["plan", "scheme=ddp"], {"hydra", "yaml", "numpy"}),  # there is one list of prices, and it is in arrays
        (["plan", "scheme=ssfusion_oi"], {"hydra", "yaml", "numpy"}),
        (["run", "--dry-run", "scheme=ddp"], {"hydra", "yaml"}),
        (["figures", "ssfusion.eq2", "ssfusion.fig11"], HEAVY - {"torch"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_what_it_needs(argv, needed, tmp_path):
    code = "import sys; from ssfx.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert HEAVY & set(done.stderr.splitlines()[-1].split()) <= needed


def test_completion_imports_neither_torch_nor_hydra():
    code = (
        "import os, sys; from ssfx.cli import main\n"
        "os.environ.update(COMP_WORDS='ssfx run scheme=', COMP_CWORD='2', _SSFX_COMPLETE='zsh_complete')\n"
        "try: main([])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('torch', 'hydra') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "scheme=ddp" in done.stdout


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("run -cd mine", "write --config-dir DIR"),
        ("run -cn throughput", "write experiment=NAME, workload=NAME or preset=NAME"),
        ("run --config-name=throughput", "write experiment=NAME, workload=NAME or preset=NAME"),
        ("run --info", "write --cfg job for the configuration"),
        ("run --info=all", "write --cfg job for the configuration"),
        ("run --cfg hydra", "write --cfg job"),
        ("run --cfg=hydra", "write --cfg job"),
        ("plan -c job", "write --cfg job or --cfg all"),
        ("run --hydra-help", "write --help"),
    ],
)
def test_a_flag_of_hydra_is_answered_with_what_to_type_instead(words, instead, capsys):
    said = refusal(capsys, *words.split())
    assert said.startswith("ssfx: -")
    assert "is a flag of Hydra's: " in said
    assert instead in said
