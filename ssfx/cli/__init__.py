"""The command line: `main` turns every user error into one line on standard error and an exit code."""

import gc
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from ssfx.cli.completion import install_bash
from ssfx.core.errors import LISTED, ConfigError, SsfxError, unknown
from ssfx.core.files import is_full
from ssfx.core.plugins import declared
from ssfx.core.progress import aloud

INTERRUPTED = 130
GARBAGE_AFTER = 50_000
"""New objects after which Python looks for garbage. Starting makes ten thousands that stay: by its own 700, `ssfx plan`
would spend 3 % of its time on them."""

SUMMARIES = {
    "advise": "Rank all schemes for a model on a cluster.",
    "simulate": "Simulate one step: where its time goes, and why.",
    "plan": "Print the plan of a scheme for a model on a cluster.",
    "profile": "Measure a model on this machine, as input of simulations.",
    "cluster": "Import, show and check clusters.",
    "list": "List schemes, compressors, models, clusters, ...",
    "run": "Run cases, skip finished ones, draw the figures.",
    "show": "Show one run: its case, its time, its plan, its files.",
    "figures": "Draw figures from the rows of runs.",
    "report": "Write every figure and every claim as one HTML page.",
    "status": "Show what came of the papers' claims, and the runs.",
    "validate": "Check the simulator against recorded runs and published times.",
    "cancel": "End an experiment's tasks in Slurm.",
    "doctor": "Show what is here, and what would run.",
}
"""The verbs of ssfx in the order one meets them, so that the help imports none of them; those of others come after."""
OWN = {
    "plan": "ssfx.cli.plan:plan",
    "simulate": "ssfx.cli.simulate:simulate",
    "advise": "ssfx.cli.advise:advise",
    "list": "ssfx.cli.listing:list_",
}
"""The verbs of the library; the others are entry points of the group VERBS."""
VERBS = "ssfx.verbs"
OTHER_VERBS = {
    **{name: f"--{name}" for name in ("help", "version")},
    "attach": "ssfx.attach in your script",
    "predict": "simulate",
    "train": "run",
    **dict.fromkeys(("bench", "benchmark", "measure"), "run, or profile of a model alone"),
    "plot": "figures",
    "import": "cluster import",
    "recommend": "advise",
    **dict.fromkeys(("info", "env", "gpu", "calibrate", "hardware"), "doctor, with --gpu it measures"),
    "claims": "status --claims PAPER",
    **dict.fromkeys(("optimize", "tune", "search", "suggest", "choose", "rank", "best", "ask", "estimate"), "advise"),
    **dict.fromkeys(("simulation", "sim", "model"), "simulate"),
    **dict.fromkeys(("compare", "diff", "sweep"), "simulate, or run, with scheme=a,b; show RUN RUN of runs"),
    **dict.fromkeys(("results", "logs", "history", "ls", "runs", "queue"), "status"),
    **dict.fromkeys(("init", "setup", "config", "configure", "new", "create"), "advise, which needs no set-up"),
    **{kind: f"list {kind}" for kind in LISTED},
    **dict.fromkeys(("eval", "evaluate", "check", "verify"), "simulate, or validate of the simulator"),
    **dict.fromkeys(("start", "launch", "torchrun", "reproduce"), "run"),
    "test": "make test, in the repository",
    "install": "pip install ., in the repository",
}
"""What people call some of the verbs."""
EXTRAS = {
    "lab": ("datasets", "pandas", "psutil", "sacrebleu", "sklearn", "torchvision", "transformers", "wandb"),
    "page": ("plotly",),
    "papers": ("matplotlib", "scipy", "PIL"),
    "integrations": ("accelerate", "lightning"),
}
"""What each extra of pyproject.toml adds, as it is imported; the library does without."""


def verbs() -> dict[str, str]:
    """Return every verb with the command that it is, "module:name", in the order of the help."""
    known = {**declared(VERBS), **OWN}
    return {name: known[name] for name in (*(name for name in SUMMARIES if name in known), *known)}


def _here(command: str) -> bool:
    """Return whether the package of a command "module:name" is installed."""
    package = command.partition(".")[0]
    return package == "ssfx" or importlib.util.find_spec(package) is not None


class _Verbs(click.Group):
    """Imports a verb when it is asked for, and answers a misspelt one with the nearest."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(verbs())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        known = verbs()
        lines = {name: SUMMARIES.get(name, f"of {value.partition(':')[0]}") for name, value in known.items()}
        absent = [name for name, value in known.items() if not _here(value)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, line in lines.items() if name not in absent])
        if absent:
            with formatter.section("In the repository of ssfx alone"):
                formatter.write_text(", ".join(absent))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        verbs_here = [name for name, value in verbs().items() if name.startswith(incomplete) and _here(value)]
        items = [CompletionItem(name, help=SUMMARIES.get(name)) for name in verbs_here]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        value = OWN.get(cmd_name) or declared(VERBS).get(cmd_name)
        if value is None:
            return None
        module, _, name = value.partition(":")
        try:
            command = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name is None or not module.startswith(error.name):
                raise
            raise ConfigError(
                f"ssfx {cmd_name} is a command of the papers' part, which is in the repository of ssfx and in no "
                "package; clone it and use make install there"
            ) from None
        assert isinstance(command, click.Command)
        return command

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return the option that shows the help, which is no line of it: whoever reads it has typed it."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.hidden = True
        return option

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and args and not args[0].startswith("-") and args[0] not in OWN:
            known = verbs()  # read where it is asked for: a command of the library starts sooner without
            if "=" in args[0]:
                raise ConfigError(f"a command comes first; write ssfx advise {' '.join(args)}, or simulate, or run")
            if args[0] not in known:
                words = f"; if one is meant for these words, write ssfx advise {' '.join(args[1:])}" if args[1:] else ""
                error = unknown("command", args[0], known, OTHER_VERBS)
                raise ConfigError(str(error).replace("ssfx -h has all 14", f"there are {', '.join(known)}{words}"))
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="ssfx", message="ssfx %(version)s", hidden=True)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """\b
    ssfx advise model=bert_large cluster=64gpu                    which scheme? words are KEY=VALUE
    ssfx simulate model=gpt2 cluster=64gpu scheme=ddp,auto --why  where the time of both goes
    ssfx run scheme=ddp,ssfusion_oi                               train a small model here with both
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 (a run failed), 2 (a request that cannot be met), 130 (Ctrl-C)."""
    gc.set_threshold(GARBAGE_AFTER)
    install_bash()
    try:
        with aloud():
            return _code_of(argv)
    finally:
        _over(argv)


def _over(argv: Sequence[str] | None) -> None:
    """Ctrl-C changes nothing any more: the command is over, and has its exit code."""
    if argv is None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _code_of(argv: Sequence[str] | None) -> int:
    try:
        code = cli.main(args=argv, prog_name="ssfx", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SsfxError as error:
        return _fail(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        extra = next((one for one, modules in EXTRAS.items() if (error.name or "").split(".")[0] in modules), None)
        if extra is None:
            raise
        return _fail(f"this command needs {error.name}, which is not installed; pip install 'ssfx[{extra}]'", 2)
    except click.UsageError as error:
        from ssfx.cli.usage_errors import line_of  # late: a wrong command alone asks

        return _fail(line_of(error, sys.argv[1:] if argv is None else argv), 2)
    except (KeyboardInterrupt, click.Abort):
        _over(argv)
        return _fail("interrupted; finished runs are kept and the same command continues", INTERRUPTED)
    except BrokenPipeError:
        # The reader, head for example, has seen enough; Python must not complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if is_full(error):
            return _fail(f"{error}; what was finished is kept, and the same command continues", 1)
        if error.filename is None:  # not of a file
            raise
        return _fail(f"{error.filename}: {error.strerror}", 1)


def _fail(text: str, code: int) -> int:
    click.echo("ssfx: " + " ".join(text.split()), err=True)
    return code
