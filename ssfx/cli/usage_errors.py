"""What is said of a command that click cannot read: one line with the option, argument or word that is meant."""

import re
from collections.abc import Sequence
from pathlib import Path

import click

from ssfx.cli.hydra_flags import instead_of
from ssfx.core.errors import near, unknown

OTHER_OPTIONS = {
    "--html": "--page",
    **dict.fromkeys(("--verbose", "-v", "--explain", "--debug", "--details"), "--why"),
    **dict.fromkeys(("--output", "-o", "--out", "--save", "--csv", "--format"), "--json > FILE"),
    **dict.fromkeys(("--gpu", "--device", "--target"), "--on"),
    **dict.fromkeys(("--paper", "--figure", "--name", "--run"), "NAME without a flag; status has --claims PAPER"),
    **dict.fromkeys(("--quiet", "-q", "--silent", "--no-progress"), "2> /dev/null, which hides progress"),
}
"""What people call some of the options."""


def line_of(error: click.UsageError, words: Sequence[str]) -> str:
    """Return the line for a command of these `words`, which ends with where its help is."""
    said, meant = error.format_message(), list[str]()
    if isinstance(error, click.BadOptionUsage):
        return said.replace("does not take a value.", f"takes no value; write {error.option_name} alone")
    if error.ctx is None:
        return instead_of(words) or f"{said} (see ssfx --help)"
    where = error.ctx.command_path
    params = error.ctx.command.get_params(error.ctx)
    options = [name for one in params for name in one.opts if name[0] == "-"]
    takes = [f"{one.opts[0]} {one.metavar or ''}".strip() for one in params if one.opts[0][:2] == "--"]
    if isinstance(error, click.NoSuchOption):  # click's own guesses are far from what was typed
        others = getattr(error.ctx.parent.command, "commands", {}).values() if error.ctx.parent else ()
        beside = [name for command in others for one in command.params for name in one.opts]
        other = OTHER_OPTIONS.get(error.option_name, "")
        meant = near(error.option_name, options)
        meant = [other] if other and (other[:2] != "--" or other.split(" ")[0] in (*options, *beside)) else meant
        said = f"no option {error.option_name}; {_hint(meant, takes)}"
    elif isinstance(error, click.MissingParameter) and error.param is not None:
        example = re.search(r"For example: (ssfx .*)", " ".join((error.ctx.command.help or "").split("  ")))
        said = f"{where} needs {error.param.make_metavar(error.ctx)}{f', as in {example[1]}' if example else ''}"
    elif isinstance(error, click.BadParameter) and isinstance(error.param, click.Argument):
        if isinstance(error.param.type, click.Choice) and (odd := re.match(r"'(.*)' is not one of", error.message)):
            said = str(unknown(error.param.name or "word", odd[1], error.param.type.choices))
            if Path(odd[1]).suffix and "--out" in options:
                meant = [f"--out {odd[1]}"]
                said = f"{where} has no place for {odd[1]}; {_hint(meant, takes)}"
    elif stray := re.fullmatch(r"Got unexpected extra arguments? \((\S+).*\)", said):
        meant = near(f"--{stray[1].partition('=')[0]}", [one for one in options if one[:2] == "--"])[:1]
        said = f"{where} has no place for {stray[1]}; {_hint(meant, takes)}"
    return instead_of(words, meant) or f"{said} (see {where} --help)"


def _hint(meant: Sequence[str], takes: Sequence[str]) -> str:
    """Return what is meant, else all options."""
    return f"did you mean {' or '.join(meant)}?" if meant else f"it takes {', '.join(takes)}"
