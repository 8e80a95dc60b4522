"""What a command answers, whether it can be done or not."""

from typing import Any

from ssfx.cli import main


def output(capsys: Any, *words: str) -> str:
    """Return what a command prints that can be done."""
    assert main(list(words)) == 0
    said: str = capsys.readouterr().out
    return said


def refusal(capsys: Any, *words: str) -> str:
    """Return the one line with which a command is refused."""
    assert main(list(words)) == 2
    said: str = capsys.readouterr().err
    assert said.count("\n") == 1
    return said
