"""`ssfx advise`: which scheme to use for a model on a cluster, how sure that is, and when compression cannot win."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

import click

from ssfx.advice import Advice, Entry, Setting, break_evens, sentences
from ssfx.advice import advise as ranked
from ssfx.advice.answer import answer_of
from ssfx.advice.break_even import BreakEven
from ssfx.advice.checked import where_checked
from ssfx.advice.screen import NEVER_SHARDED, first_screen
from ssfx.advice.training_time import TrainingTime, training_times
from ssfx.cli.completion import overrides_argument
from ssfx.cli.pictures import bar_lines, bars_svg, parts_of, write_page
from ssfx.cli.terminal import picked, print_table, say
from ssfx.config.advice_question import by_quality, resolve_setting
from ssfx.core.errors import ConfigError
from ssfx.core.numbers import rounded
from ssfx.perf_model.cautions import cautions
from ssfx.perf_model.recorded_times import measured_on


@click.command()
@overrides_argument
@click.option("--all", "every", is_flag=True, help="Also every scheme in a table, and what the times do not say.")
@click.option("--break-even", "evens", is_flag=True, help="Also the bandwidth below which each scheme is faster.")
@click.option("--sources", is_flag=True, help="Also where the times come from.")
@click.option(
    "--plot", "drawn", is_flag=True, help="Also a bar for each scheme: compute, compression, exposed exchange."
)
@click.option(
    "--html", "page", type=click.Path(dir_okay=False, path_type=Path), help="Write answer and bars to a page."
)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one JSON object.")
def advise(
    overrides: tuple[str, ...], every: bool, evens: bool, sources: bool, drawn: bool, page: Path | None, as_json: bool
) -> None:
    """Say whether compression helps a model on a cluster, by simulating every scheme beside tuned dense DDP.

    For example: ssfx advise model=bert_large cluster=64gpu density=0.01
    """
    if all(word.startswith(("cluster=", "cluster.")) for word in overrides):  # no model is meant by default
        raise ConfigError(
            "say which model on which cluster: ssfx advise model=bert_large cluster=64gpu; ssfx list models and "
            "ssfx list clusters have names, docs/clusters.md says how to describe yours"
        )

    overrides, quality = by_quality(overrides)
    if quality:
        if every or evens or sources or drawn or page:
            raise ConfigError("target=quality has one table; drop --all, --plot, --html, --break-even and --sources")
        _by_quality(resolve_setting(overrides), as_json)
        return
    if as_json and (drawn or page):
        raise ConfigError(f"--json draws nothing: drop --json, or {'--plot' if drawn else '--html'}")
    advice = ranked(resolve_setting(overrides))
    if as_json:
        found = dict(break_evens(advice))
        click.echo(json.dumps(_plain(advice, found, sentences(advice)), sort_keys=True))
        return
    _answer(advice, overrides)
    if drawn or page:
        _draw(advice, drawn, page)
    if every:
        click.echo()
        _ranking(advice)
        click.echo()
        for sentence in sentences(advice):
            say(sentence, "  ", "- ")
    if evens:
        click.echo()
        _break_evens(advice)
    if sources:
        click.echo()
        _origins(advice)


def _by_quality(setting: Setting, as_json: bool) -> None:
    """Print the steps that each scheme needs for what dense training reaches, and their time, fastest first."""
    found = training_times(ranked(setting))
    if as_json:
        click.echo(json.dumps([_plain_training(one) for one in found]))
        return
    default = "" if setting.train_steps else " (train_steps=N for another number)"
    say(
        f"{setting.profile.model} on {setting.cluster.name}: {setting.cluster.world_size} ranks, time to what dense "
        f"training reaches in {setting.steps:,} steps{default}: steps by recorded runs of small networks times "
        "simulated iterations",
        "  ",
        "",
        bold=True,
    )
    columns = ("scheme", "steps", "ms a step", "minutes", "more steps rest on")
    known = [one for one in found if one.needed.share is not None]
    print_table(
        columns,
        [
            (
                one.entry.scheme,
                f"{one.steps:,.0f}",
                rounded(1e3 * one.entry.iteration_s, 4),
                rounded(one.time_s / 60, 4),
                str(one.needed),
            )
            for one in known
        ],
        right=set(columns) - {"scheme", "more steps rest on"},
    )
    unknown = [one.entry.scheme for one in found if one.needed.share is None]
    if unknown:
        say(f"not ranked, because their quality here is unknown or worse: {', '.join(unknown)}", "  ", "")
    for caution in cautions(setting.profile, setting.cluster):
        say(f"beware: {caution}", "  ", "", fg="yellow")
    say("steps were recorded on small networks in at most 2,000 steps, and may be others on yours", "  ", "")


def _plain_training(one: TrainingTime) -> dict[str, Any]:
    known = one.needed.share is not None
    return {
        **picked(one, "train_steps worst_s"),
        **picked(one.entry, "scheme iteration_s"),
        **picked(one.needed, "source more_steps=share low high"),
        "steps": one.steps if known else None,
        "time_s": one.time_s if known else None,
    }


def _answer(advice: Advice, overrides: tuple[str, ...]) -> None:
    """Print the first screen: the answer, three groups of schemes, and what to type next."""
    for line in first_screen(advice):
        say(line.text, line.indent, line.first, bold=line.bold, fg="yellow" if line.warns else None)
    answer = answer_of(advice)
    click.echo()
    words = " ".join(overrides)
    say(
        f"Next: ssfx advise {words} --all (every scheme), --plot (a picture), --break-even (bandwidths), --sources "
        "(where times come from)",
        "  ",
    )
    if answer.best is not None:
        best, options = answer.best.scheme, answer.best.trial.options
        # What says how a training is judged changes no step, but what auto may send; there a density is a budget
        # without any promise of quality, and the answer is under quality=normal.
        judged = ("train_steps=", "clip_norm=", *(("density=",) if best == "auto" else ()))
        words = " ".join(word for word in overrides if not word.startswith(judged))
        if best == "auto" and (known := [f"{name}={value}" for name, value in options.items() if name != "quality"]):
            best = f"'auto({','.join(known)})'"
        if compressor := options.get("compressor"):
            words += f" 'compressor={compressor}'"
        say(f"ssfx simulate {words} scheme=ddp,{best} --why (where the time goes)", "  ", "      ")


def _draw(advice: Advice, drawn: bool, page: Path | None) -> None:
    """Draw a bar for each scheme, on the terminal and to a page."""
    answer = answer_of(advice)
    ranked = [one for one in advice.entries if one not in answer.vague]
    bars = {one.scheme: parts_of(one.trial.simulated.metrics(1)) for one in ranked}
    if drawn:
        click.echo()
        for line in bar_lines(bars):
            click.echo(line)
    if page:
        setting = advice.setting
        write_page(page, f"{setting.profile.model} on {setting.cluster.name}", bars_svg(bars), str(advice))
        click.echo(f"page: {page}")


def _ranking(advice: Advice) -> None:
    setting = advice.setting
    header = ("rank", "scheme", "compressor", "iteration ms", "samples/s", "scaling", "vs dense", "exposed ms", "")
    print_table(
        header, [_line(entry, advice) for entry in advice.entries], right=set(header) - {"scheme", "compressor"}
    )
    trust = advice.trust
    if trust is None:
        click.secho(
            f"no error bars: there is no validation for this kind of system ({setting.system.origin.kind}), so that "
            "ranks follow simulated times alone",
            fg="yellow",
        )
    else:
        say(
            f"error bars: {trust.mean:.1%}, the mean error on the {trust.group} validation group (n = {trust.count}, "
            f"at most {trust.max:.1%}); schemes whose bars overlap are not ordered and share their ranks"
        )


def _line(entry: Entry, advice: Advice) -> tuple[str, ...]:
    best, worst = entry.rank
    error = f" +- {1e3 * entry.iteration_s * advice.trust.mean:.1f}" if advice.trust else ""
    dense = " (tuned dense)" if entry is advice.dense else ""
    return (
        str(best) if best == worst else f"{best}-{worst}",
        f"{entry.trial.title}{dense}",
        ", ".join(entry.compressors) or "-",
        f"{1e3 * entry.iteration_s:.1f}{error}",
        f"{entry.throughput_samples_per_s:,.1f}",
        f"{entry.scaling:.3f}",
        f"{entry.speedup_vs_dense:.2f}x",
        f"{1e3 * entry.trial.simulated.exposed_comm_s:.1f}",
        "extrapolated" if entry.trial.simulated.outside else "",
    )


def _break_evens(advice: Advice) -> None:
    """Print every break-even as soon as it is known."""
    width = max(len(entry.scheme) for entry in advice.entries)
    rate, found = f"{advice.setting.gbps:g}", False
    for scheme, one in break_evens(advice):
        if not found:
            click.secho(f"{'scheme':{width}}  a step is shorter than tuned dense's below", bold=True)
            click.echo(
                f"{'':{width}}  of 0.01 to 10000 Gbit/s; here {rate}. Of the time of a step alone: how many steps "
                "a quality takes is not in it"
            )
            found = True
        click.echo(f"{scheme:{width}}  {one}")
    if not found:
        click.echo("no break-even bandwidths: exchanges on this cluster were measured, not computed from a bandwidth")


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


def _plain(advice: Advice, found: Mapping[str, BreakEven], sentences: list[str]) -> dict[str, Any]:
    setting, trust, answer = advice.setting, advice.trust, answer_of(advice)
    needed = setting.memory(advice.dense.trial)
    return {
        **picked(answer, "answer=word reason most"),
        **picked(setting.profile, "host_bound model batch_size"),
        **picked(setting.cluster, "cluster=name world_size exchanges=exchange_text"),
        **picked(setting, "precision density gbps"),
        **({"sharding": setting.sharding.text} if setting.sharding else {}),
        "origin": "simulated",
        "calibration": setting.system.origin.kind,
        "single_iteration_s": setting.profile.alone_s(),
        "costs": asdict(setting.system.origin),
        "profile": asdict(setting.profile.origin),
        "error_bar": trust and asdict(trust),
        "unproven": [one.scheme for one in answer.unproven],
        "compressor_times": advice.codec_kinds,
        "checked": NEVER_SHARDED if setting.sharding else where_checked(setting.cluster),
        "memory": needed and needed.plain(),
        "tuned_dense": advice.dense.scheme,
        "schemes": [_plain_entry(one, found.get(one.scheme)) for one in advice.entries],
        "sentences": sentences,
        "cautions": cautions(setting.profile, setting.cluster),
        "left_out": dict(advice.left_out),
    }


def _plain_entry(entry: Entry, even: BreakEven | None) -> dict[str, Any]:
    step, gbps = entry.trial.simulated, even and (None if even.gbps == inf else even.gbps)
    return {
        **picked(entry, "scheme compressors more_steps rank iteration_s throughput_samples_per_s leaves_tensors_out"),
        **picked(entry, "scaling_factor=scaling speedup_vs_dense"),
        **picked(step, "exposed_comm_s extrapolated=outside"),
        "options": dict(entry.trial.options),
        "error": entry.trust and asdict(entry.trust),
        "plan_digest": step.plan.digest,
        "break_even": even and {"text": str(even), "gbps": gbps, "loses_at_gbps": even.loses_at_gbps},
    }
