"""Hydra is asked once for what depends on the same files, and again as soon as one of them is another."""

import subprocess
import sys

import pytest

from ssfx.config import remembered as module
from ssfx.config.remembered import remembered


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Return a question of one file, and the list of how often it was answered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file, answers = tmp_path / "a.yaml", []
    file.write_text("x: 1")

    def ask(question="q"):
        def answer():
            answers.append(question)
            return {"x": [1, 0.5, None, question]}

        return remembered(answer, question, [file])

    return ask, answers, file


def test_an_answer_is_given_once(asked):
    ask, answers, _ = asked
    assert ask() == ask() == {"x": [1, 0.5, None, "q"]}
    assert answers == ["q"]


def test_another_question_file_or_hydra_is_asked_again(asked, monkeypatch, tmp_path):
    ask, answers, file = asked
    ask()
    assert ask("p")["x"][-1] == "p"
    file.write_text("x: 2")
    ask()
    assert len(answers) == 3
    other = tmp_path / "hydra.py"
    other.write_text("__version__ = 2")
    spec = module.find_spec("hydra")
    spec.origin = str(other)
    monkeypatch.setattr(module, "find_spec", lambda name: spec)
    ask()
    assert len(answers) == 4


def test_a_damaged_answer_is_asked_again(asked, tmp_path):
    ask, answers, _ = asked
    ask()
    (kept,) = (tmp_path / "cache" / "ssfx" / "joined").iterdir()
    kept.write_text("{")
    assert ask() == ask()
    assert len(answers) == 2


def test_without_a_place_to_keep_it_every_answer_is_asked(asked, tmp_path):
    ask, answers, _ = asked
    (tmp_path / "cache").write_text("a file, not a folder")
    assert ask() == ask()
    assert len(answers) == 2


def test_an_error_is_not_remembered(asked, tmp_path):
    _, _, file = asked

    def fail():
        raise LookupError("no such file")

    for _ in range(2):
        with pytest.raises(LookupError):
            remembered(fail, "q", [file])
    assert not (tmp_path / "cache").exists()


SIMULATE = """import sys
from ssfx.cli import main
assert main("simulate model=bert_large cluster=64gpu scheme=ssfusion_oi density=0.01".split()) == 0
assert ("hydra" in sys.modules) == (sys.argv[1] == "first")
"""


def test_the_second_simulation_does_without_hydra(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said = [
        subprocess.run([sys.executable, "-c", SIMULATE, turn], capture_output=True, text=True, check=True).stdout
        for turn in ("first", "second")
    ]
    assert said[0] == said[1] != ""
