"""What a command that cannot be done answers."""

from typing import Any

from ssfx.cli import main


def refusal(capsys: Any, *words: str) -> str:
    """Return the one line with which a command is refused."""
    assert main(list(words)) == 2
    said: str = capsys.readouterr().err
    assert said.count("\n") == 1
    return said
