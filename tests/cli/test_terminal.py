"""Tables and sentences fit a terminal, and are whole in a pipe."""

import pytest

from ssfx.cli import terminal

ROWS = [("dgc", "a sentence about a compressor that is much too long for the terminal of a reader", "1.0")]


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setattr(terminal, "columns", lambda wide=False: None if wide else 50)


def test_a_table_wraps_inside_its_columns(narrow, capsys):
    terminal.print_table(("name", "what", "ms"), ROWS, right={"ms"})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 50
    assert "".join(lines).replace(" ", "").count("muchtoolong") == 1
    assert lines[1].endswith("1.0")


def test_wide_and_pipes_get_whole_lines(narrow, capsys):
    terminal.print_table(("name", "what", "ms"), ROWS, wide=True)
    assert ROWS[0][1] in capsys.readouterr().out


def test_a_pipe_has_no_limit():
    assert terminal.columns() is None


def test_a_process_without_stdout_has_no_limit(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    assert terminal.columns() is None
    terminal.print_table(("name", "what", "ms"), ROWS)


def test_a_sentence_wraps_under_its_beginning(narrow, capsys):
    terminal.say("word " * 20, "      ", "ANSWER")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ANSWERword")
    assert all(line.startswith("      word") and len(line) <= 50 for line in lines[1:])
