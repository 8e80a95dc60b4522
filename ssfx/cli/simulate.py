"""`ssfx simulate`: one step of a scheme on a cluster that need not be here, and where its time goes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ssfx.cli.completion import overrides_argument
from ssfx.cli.steps import compare, critical_paths, names_of, plain, show

if TYPE_CHECKING:
    from ssfx.cli.steps import Outcome


@click.command(short_help="Simulate one step: where its time goes, and why.")
@overrides_argument
@click.option("--why", "explain", is_flag=True, help="Explain every further case by the first one.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), help="Write a Chrome trace to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per case, one a line.")
@click.option(
    "--achieved-density",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="FRACTION",
    help="What compressors really keep, where that is not the density they are asked for.",
)
@click.option(
    "--build-up", type=click.FloatRange(min=1), metavar="TIMES",
    help="Elements that all ranks select together over those of one; else no two select the same.",
)  # fmt: skip
def simulate(
    overrides: tuple[str, ...], explain: bool, trace: Path | None, as_json: bool, achieved_density: float | None,
    build_up: float | None,
) -> None:  # fmt: skip
    """Simulate one training step of KEY=VALUE words in virtual time; comma lists compare.

    For example: ssfx simulate model=bert_large cluster=64gpu scheme=ddp,ssfusion_oi density=0.01 --why
    """
    # A step has no linear algebra: numpy need not start a thread for every core, which a busy machine pays for.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from ssfx.advice.cases import selection_of, simulate_case
    from ssfx.config.simulations import resolve_simulations
    from ssfx.core.doing import doing
    from ssfx.core.errors import ConfigError
    from ssfx.simulator import why
    from ssfx.simulator.trace import save

    cases = resolve_simulations(overrides)
    if explain and len(cases) < 2:
        raise ConfigError("--why compares, and there is one case; write for example scheme=ddp,ssfusion_oi")
    known = {"achieved_density": achieved_density, "build_up": build_up}
    given = {name: value for name, value in known.items() if value is not None}
    outcomes = []
    with doing(f"simulating {len(cases)} steps"):
        for number, case in enumerate(cases, 1):
            with doing(f"planning and simulating {case.label}, {number} of {len(cases)}"):
                outcomes.append((case, *simulate_case(case, selection_of(case, achieved_density, build_up))))
        without_effect = _without_effect(outcomes, given)
    names = names_of(cases)
    steps = [step for _, _, step in outcomes]
    later = zip(names[1:], steps[1:], strict=True)
    reasons = [[], *(why(steps[0], step, (names[0], name)) for name, step in later)]
    if as_json:
        for outcome, reason, idle in zip(outcomes, reasons, without_effect, strict=True):
            said = {"known": given, "without_effect": idle} if given else {}
            click.echo(json.dumps(plain(outcome) | said | ({"why": reason} if explain else {}), sort_keys=True))
    else:
        with doing("simulating half and twice the bandwidth"):
            show(outcomes[0]) if len(outcomes) == 1 else compare(outcomes, names)
        if explain:
            critical_paths(steps, names)
            for line in (line for reason in reasons for line in reason):
                click.echo(line)
        if given:
            click.echo("given: " + ", ".join(f"{_word(option)} {value:g}" for option, value in given.items()))
        for name, idle in zip(names, without_effect, strict=True):
            for option in idle:
                click.echo(f"{_word(option)} changes nothing about {name}")
    if trace:
        try:
            save(dict(zip(names, steps, strict=True)), trace)
        except OSError as error:
            raise ConfigError(f"cannot write {trace}: {error.strerror}") from None


def _without_effect(outcomes: Sequence[Outcome], given: Mapping[str, float]) -> list[tuple[str, ...]]:
    """Return of each case the options that change nothing about it; ConfigError for one that does so of every case."""
    from ssfx.advice.cases import unmoved
    from ssfx.core.errors import ConfigError

    found = [unmoved(case, step, given) for case, _, step in outcomes]
    for option in given:
        if all(option in idle for idle in found):
            raise ConfigError(
                f"{_word(option)} changes nothing here: messages have the size that was asked for, or their exchange "
                f"was measured as a whole; drop it, or simulate a scheme like oktopk on a cluster like 64gpu"
            )
    return found


def _word(option: str) -> str:
    return "--" + option.replace("_", "-")
