"""`ssfx advise`: whether compression helps a model on a cluster, in eight lines, and what stands behind each."""

import json
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

import click

from ssfx.advice import Advice, break_evens
from ssfx.advice import advise as ranked
from ssfx.advice.answer import Answer, answer_of
from ssfx.advice.details import details
from ssfx.advice.play import parts_of
from ssfx.advice.published import local_updates, published_of, quotes
from ssfx.advice.screen import WIDTH, evidence, facts, first_screen, labelled, wrapped
from ssfx.advice.setting import TASKS
from ssfx.cli.completion import overrides_argument
from ssfx.cli.page import combinations, write_page
from ssfx.cli.pictures import bar_lines
from ssfx.cli.terminal import columns, print_table, say
from ssfx.config.advice_question import resolve_setting
from ssfx.core.errors import ConfigError
from ssfx.core.numbers import rounded
from ssfx.perf_model.recorded_times import measured_on


@click.command()
@overrides_argument
@click.option("--all", "every", is_flag=True, help="Also every scheme in a table, with its break-even bandwidth.")
@click.option("--why", is_flag=True, help="Also where the time goes, and what was checked.")
@click.option("--quality", is_flag=True, help="Also the time to what dense training reaches, and what is published.")
@click.option("--sources", is_flag=True, help="Also where the times come from.")
@click.option("--plot", "drawn", is_flag=True, help="Also a bar a scheme: compute, compression, exposed exchange.")
@click.option(
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also a page to play with, in this .html file; comma lists are its choices.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one JSON object.")
def advise(
    overrides: tuple[str, ...],
    every: bool,
    why: bool,
    quality: bool,
    sources: bool,
    drawn: bool,
    page: Path | None,
    as_json: bool,
) -> None:
    """Say whether compression helps a model on a cluster, by simulating every scheme beside tuned dense DDP.

    For example: ssfx advise model=bert_large cluster=64gpu density=0.01
    """
    if all(word.startswith(("cluster=", "cluster.")) for word in overrides):  # no model is meant by default
        raise ConfigError(
            "say which model on which cluster: ssfx advise model=bert_large cluster=64gpu; ssfx list models and "
            "ssfx list clusters have names, docs/clusters.md says how to describe yours"
        )
    if as_json and (drawn or page):
        raise ConfigError(f"--json draws nothing: drop --json, or {'--plot' if drawn else '--page'}")
    settings = write_page(page, overrides) if page else 0
    advice = ranked(resolve_setting(combinations(overrides)[0] if page else overrides))
    answer = answer_of(advice)
    if as_json:
        click.echo(json.dumps(_plain(advice, answer), sort_keys=True))
        return
    for number, (first, text) in enumerate(first_screen(answer)):
        text = wrapped(first, text, min(WIDTH, columns() or WIDTH))
        click.secho(text, bold=number < 2, fg=None if first or not number else "yellow")
    if not any(word.startswith("cluster") for word in overrides):
        say("no cluster= was said: this is of local, the ranks of this machine", "  ", fg="yellow")
    parts = {_ranking: every, _quality: quality, _origins: sources}
    if drawn:
        click.echo()
        for line in bar_lines({one.name: parts_of(one.trial.simulated) for one in advice.entries}):
            click.echo(line)
    if page:
        click.echo(f"page: {page}{f' ({settings} settings; above is the first)' if settings > 1 else ''}")
    if why:
        click.echo()
        for sentence in details(advice):
            say(sentence, "  ", "- ")
    if quality:
        click.echo()
        for one in labelled(evidence(answer)):
            click.echo(wrapped(*one))
    for part in (one for one, wanted in parts.items() if wanted):
        click.echo()
        part(advice)


def _quality(advice: Advice) -> None:
    """Print the steps that each scheme needs for what dense training reaches, their time, and what is published."""
    setting = advice.setting
    default = "" if setting.train_steps else " (train_steps=N for another number)"
    say(
        f"time to what dense training reaches in {setting.steps:,} steps{default}: steps by recorded runs of small "
        "networks, which may be others on yours, times simulated iterations",
        "  ",
        "",
        bold=True,
    )
    columns = ("scheme", "more steps", "steps", "ms a step", "minutes")
    rows, rests = [], dict[str, list[str]]()
    for one in sorted(advice.entries, key=lambda one: (one.steps * one.iteration_s, one.iteration_s)):
        more = str(one.needed).removesuffix(one.needed.source).rstrip(", ") or "unknown"
        more = "counts as dense" if one.needed.share == 0 and not one.needed.runs else more
        steps = one.steps if one.steps <= 10 * setting.steps else inf  # beyond, a number would say more than is known
        cells = ("-", "-") if steps == inf else (f"{steps:,.0f}", rounded(steps * one.iteration_s / 60, 4))
        rows.append((one.name, more, cells[0], rounded(1e3 * one.iteration_s, 4), cells[1]))
        rests.setdefault(one.needed.source, []).append(one.name)
    print_table(columns, rows, right=set(columns) - {"scheme", "more steps"})
    for source, names in rests.items():
        say(f"{', '.join(names)}: {source}", "  ", "")
    task, other = TASKS[setting.fine_tuning], TASKS[not setting.fine_tuning]
    said = f"published, not run by ssfx, of {task} (task={other} for that; ssfx list published has every point)"
    click.secho(said, bold=True)
    size, silent = sum(one.numel for one in setting.network.tensors), []
    found = {
        one.name: published_of(one.trial.plan, setting.network, fine_tuning=setting.fine_tuning)
        for one in advice.compressing
    }
    for name, held in (found | {"DiLoCo": local_updates(setting.network, setting.cluster.nodes)}).items():
        silent += [] if held else [name]
        for quote in quotes(held, size):
            say(f"{name}: {quote.text}", "  ", "")
    if silent:
        say(f"no published pair of such a network, optimizer and ratio: {', '.join(silent)}", "  ", "")


def _ranking(advice: Advice) -> None:
    evens = break_evens(advice)
    header = (
        *("rank", "scheme", "compressor", "iteration ms", "samples/s", "work of", "vs dense", "exposed ms"),
        *(("wins below",) if evens else ()),
        "",
    )
    rows = [
        (
            "-".join(dict.fromkeys(map(str, one.rank))) if one.trust or advice.dense.trust else "?",
            f"{one.trial.title}{' (tuned dense)' if one is advice.dense else ''}",
            ", ".join(one.compressors) or "-",
            f"{1e3 * one.iteration_s:.1f} +- {f'{1e3 * one.iteration_s * one.trust.mean:.1f}' if one.trust else '?'}",
            f"{one.samples_per_s:,.1f}",
            rounded(one.work, 3),
            f"{one.vs_dense:.2f}x",
            f"{1e3 * one.trial.simulated.exposed_comm_s:.1f}",
            *((str(evens.get(one.name, "-")),) if evens else ()),
            "extrapolated" if one.trial.simulated.outside else "",
        )
        for one in advice.entries
    ]
    print_table(header, rows, right=set(header) - {"scheme", "compressor"})
    say("+-: the mean error of steps that send alike; schemes whose bars overlap are not ordered and share their ranks")


def _origins(advice: Advice) -> None:
    system, profile = advice.setting.system, advice.setting.profile
    say(f"costs: {system.origin.kind}{measured_on(system.origin)}. {system.origin.note}", "  ", "")
    if kinds := advice.codec_kinds:
        # All that was measured of compressors in one system was measured on one machine.
        on = {kind: measured_on(system.codec(names[0]).origin) for kind, names in kinds.items()}
        times = "; ".join(f"{kind}{on[kind]} for {', '.join(names)}" for kind, names in kinds.items())
        say(f"compressor times: {times}", "  ", "")
    on_what = f"{profile.origin.kind}, {profile.device}{measured_on(profile.origin)}"
    say(f"profile: {on_what}. {profile.origin.how}", "  ", "")
    for name, reason in advice.left_out:
        say(f"left out: {name}: {reason}", "  ", fg="yellow")


def _plain(advice: Advice, answer: Answer) -> dict[str, Any]:
    """Return the fields of the answer, its sentences, and what stands behind them."""
    setting, found = advice.setting, break_evens(advice)
    plain = answer.plain()
    for one in plain["schemes"]:
        even = found.get(one["name"])
        gbps = even and (None if even.gbps == inf else even.gbps)
        one["break_even"] = even and {"text": str(even), "gbps": gbps, "loses_at_gbps": even.loses_at_gbps}
    return {
        **plain,
        "facts": facts(answer) | evidence(answer),
        "why": details(advice),
        "gbps": setting.gbps,
        "origin": "simulated",
        "calibration": setting.system.origin.kind,
        "costs": asdict(setting.system.origin),
        "profile": asdict(setting.profile.origin),
        "compressor_times": advice.codec_kinds,
        "exchanges": setting.cluster.exchange_text,
        "left_out": dict(advice.left_out),
    }
