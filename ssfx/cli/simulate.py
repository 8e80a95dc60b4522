"""`ssfx simulate`: one step of a scheme on a cluster that need not be here, and where its time goes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ssfx.advice.cases import memory_of, selection_of, sensitivity, sharding_of, simulate_case, unmoved
from ssfx.advice.screen import worth
from ssfx.cli.completion import overrides_argument
from ssfx.cli.terminal import picked, print_table
from ssfx.config.simulations import resolve_simulations
from ssfx.core.case import Case
from ssfx.core.errors import ConfigError
from ssfx.core.numbers import numeric, rounded
from ssfx.core.progress import doing
from ssfx.perf_model.cautions import cautions
from ssfx.perf_model.recorded_times import measured_on
from ssfx.perf_model.target import Target
from ssfx.simulator import Simulated, why
from ssfx.simulator.pricing.degenerate import degenerated
from ssfx.simulator.trace import save

Outcome = tuple[Case, Target, Simulated]


@click.command()
@overrides_argument
@click.option("--why", "explain", is_flag=True, help="Explain every further case by the first one.")
@click.option("--trace", type=click.Path(dir_okay=False, path_type=Path), help="Write a Chrome trace to this file.")
@click.option("-m", "--multirun", is_flag=True, hidden=True, expose_value=False, help="As in Hydra.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per case, one a line.")
@click.option(
    "--achieved-density",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="FRACTION",
    help="What compressors really keep, where that is not the density they are asked for.",
)
@click.option(
    "--build-up",
    type=click.FloatRange(min=1),
    metavar="TIMES",
    help="Elements that all ranks select together over those of one; else no two select the same.",
)
def simulate(
    overrides: tuple[str, ...],
    explain: bool,
    trace: Path | None,
    as_json: bool,
    achieved_density: float | None,
    build_up: float | None,
) -> None:
    """Simulate one training step of KEY=VALUE words in virtual time; comma lists compare.

    For example: ssfx simulate model=bert_large cluster=64gpu scheme=ddp,ssfusion_oi density=0.01 --why
    """
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
    if not as_json and len(cases) > 2:
        show_sweep(outcomes)
    if trace:
        try:
            save(dict(zip(names, steps, strict=True)), trace)
        except OSError as error:
            raise ConfigError(f"cannot write {trace}: {error.strerror}") from None


def show_sweep(outcomes: Sequence[Outcome]) -> None:
    """The times over the axis that is swept are printed, where there is one."""
    axis, lines = swept(outcomes)
    if axis:
        values = sorted({value for line in lines.values() for value in line})
        rows = [
            (
                f"{value:g}",
                *(f"{1e3 * line[value]:.2f}" for line in lines.values()),
                min(lines, key=lambda name: lines[name][value]),
            )
            for value in values
        ]
        click.echo()
        print_table((f"ms by {axis}", *lines, "fastest"), rows, right=set(lines))


def swept(outcomes: Sequence[Outcome]) -> tuple[str, dict[str, dict[float, float]]]:
    """Return the one number that cases differ in beside their scheme, and seconds over it by scheme; "" if none is."""
    facts = [
        {
            **{key: float(value) for key, value in case.cluster.options.items() if is_number(value)},
            "ranks": float(case.world_size),
            "batch_size": float(case.batch_size),
            "accumulate": float(case.accumulate),
            **({"density": case.density} if case.density else {}),
        }
        for case, _, _ in outcomes
    ]
    names = list(dict.fromkeys(key for one in facts for key in one))
    apart = [key for key in names if len({one.get(key) for one in facts if key in one}) > 1]
    apart = [key for key in apart if key != "ranks"] or apart
    lines: dict[str, dict[float, float]] = {}
    for fact, (case, target, step) in zip(facts, outcomes, strict=True):
        inter = target.cluster.inter.gbps if apart == ["inter.gbps"] else 0.0
        for key in apart[:1]:
            lines.setdefault(case.scheme, {})[fact.get(key, inter)] = step.iteration_s
    whole = len(apart) == 1 and len({len(line) for line in lines.values()}) == 1
    same = whole and sum(map(len, lines.values())) == len(outcomes) and all(min(line) > 0 for line in lines.values())
    return (apart[0], lines) if same and len(next(iter(lines.values()))) > 1 else ("", {})


def is_number(value: object) -> bool:
    """Return whether an option of a cluster is a number, as text or not."""
    return isinstance(numeric(value), int | float) and not isinstance(value, bool)


def _without_effect(outcomes: Sequence[Outcome], given: Mapping[str, float]) -> list[tuple[str, ...]]:
    """Return of each case the options that change nothing about it; ConfigError for one that does so of every case."""
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


_BAR = 40
_PARTS = {
    "forward_s": "forward",
    "backward_s": "backward",
    "sparsify_s": "compression",
    "exposed_comm_s": "exposed exchange",
    "step_s": "optimizer step",
    "other_s": "other",
}


def show(outcome: Outcome) -> None:
    """The parts, the critical path and the bytes of one step are printed, and what they rest on."""
    case, target, step = outcome
    metrics, critical = _metrics(outcome), step.critical_s()
    click.secho(f"{_title(case)}, {_sparse(case) or 'dense'}", bold=True)
    needed = memory_of(*outcome)
    if needed and not needed.fits:
        click.secho(f"memory: {needed.text}", fg="yellow")
        return
    click.echo(
        f"simulated: {_ms(step.iteration_s)} per iteration, {metrics['throughput_samples_per_s']:,.1f} samples/s, "
        f"scaling factor {_scaling(outcome):.3f} (one device alone: {_ms(target.profile.alone_s(case.accumulate))}): "
        f"{worth(case.world_size, target.cluster.device, case.world_size * _scaling(outcome))}"
    )
    rows = [_line(label, metrics[name], step.iteration_s) for name, label in _PARTS.items()]
    print_table(("where the time goes", "ms", "share", ""), rows, right={"ms", "share"})
    rows = [_line(stage, seconds, step.iteration_s) for stage, seconds in critical.items() if seconds]
    print_table(("critical path", "ms", "share", ""), rows, right={"ms", "share"})
    click.echo(
        f"exchange: {_ms(step.comm_s)} under way, {_ms(step.exposed_comm_s)} exposed; tasks that disturb one another "
        f"cost {_ms(max(0.0, step.slowdown_s()))} on the critical path"
    )
    click.echo(f"bytes per rank: {metrics['contributed_bytes']:,} handed over, {metrics['sent_bytes']:,} sent")
    _remarks(outcome)
    for line in step.outside:
        click.secho(f"extrapolated: {line}", fg="yellow")
    _origins([outcome])
    click.echo(f"plan {step.plan.digest}, calibration {case.calibration}")


def compare(outcomes: Sequence[Outcome], names: Sequence[str]) -> None:
    """One line for each of several steps is printed, and what they rest on."""
    header = (
        "case",
        "iteration ms",
        "samples/s",
        "work of",
        "compression",
        "exposed",
        "exchange",
        "handed over",
        "",
    )
    rows = []
    profiles = [target.profile.origin.kind for _, target, _ in outcomes]
    for name, outcome, kind in zip(names, outcomes, profiles, strict=True):
        step, metrics, needed = outcome[2], _metrics(outcome), memory_of(*outcome)
        if needed and not needed.fits:
            rows.append((name, *("-" for _ in header[1:-1]), "does not fit"))
            continue
        # A measured time beside one from a data sheet: their difference is not that of the cases.
        marks = ["extrapolated"] * bool(step.outside) + [f"{kind} profile"] * (len(set(profiles)) > 1)
        rows.append(
            (
                name,
                f"{1e3 * step.iteration_s:.2f}",
                f"{metrics['throughput_samples_per_s']:,.1f}",
                rounded(outcome[0].world_size * _scaling(outcome), 2),
                f"{1e3 * metrics['sparsify_s']:.2f}",
                f"{1e3 * step.exposed_comm_s:.2f}",
                f"{1e3 * step.comm_s:.2f}",
                f"{metrics['contributed_bytes'] / 2**20:.2f} MiB",
                ", ".join(marks),
            )
        )
    shared = {_title(case, scheme=False) for case, _, _ in outcomes}
    click.secho(f"simulated{' for ' + shared.pop() if len(shared) == 1 else ''}, times in ms", bold=True)
    print_table(header, rows, right=set(header[1:-1]))
    for name, outcome in zip(names, outcomes, strict=True):
        _remarks(outcome, f"{name}: ")
    _origins(outcomes)


def _remarks(outcome: Outcome, whose: str = "") -> None:
    """Print how the plan came about, whether it is a plan of its scheme at all, and what other bandwidths would do."""
    case, target, step = outcome
    if needed := memory_of(*outcome):
        click.secho(f"{whose}memory: {needed.text}", fg=None if needed.fits else "yellow")
        if not needed.fits:
            return
    if rule := dict(step.plan.notes).get("rule"):
        click.echo(f"{whose}rule: {rule}")
    if odd := degenerated(step.plan, case.density):
        click.secho(f"{whose}{odd}" if not whose else odd, fg="yellow")
    if case.world_size > 1:
        half_s, twice_s = sensitivity(case, target)
        click.echo(f"{whose}with half the bus bandwidth {_ms(half_s)}, with twice {_ms(twice_s)} per iteration")


def critical_paths(steps: Sequence[Simulated], names: Sequence[str]) -> None:
    """The stages of all critical paths are printed side by side; each column sums to its iteration."""
    paths = [step.critical_s() for step in steps]
    header = ("critical path, ms", *names)
    stages = [stage for stage in paths[0] if any(path[stage] for path in paths)]
    rows = [(stage, *(f"{1e3 * path[stage]:.2f}" for path in paths)) for stage in stages]
    print_table(header, rows, right=set(names))


def _origins(outcomes: Sequence[Outcome]) -> None:
    """Print what the numbers rest on and what to beware of, each text once."""
    texts = []
    for _, target, _ in outcomes:
        costs, profile = target.system.origin, target.profile.origin
        texts.append(f"costs: {costs.kind}{measured_on(costs)}. {costs.note}")
        texts.append(f"profile: {profile.kind}, {target.profile.device}{measured_on(profile)}. {profile.how}")
    for text in sorted(dict.fromkeys(texts)):
        click.echo(text)
    words = [word for _, target, _ in outcomes for word in cautions(target.profile, target.cluster)]
    for word in dict.fromkeys(words):
        click.secho(f"beware: {word}", fg="yellow")


def plain(outcome: Outcome) -> dict[str, Any]:
    """Return a step as what JSON can hold."""
    case, target, step = outcome
    needed = memory_of(*outcome)
    return {
        **picked(case, "model world_size batch_size precision scheme compressor density calibration"),
        "cluster": str(case.cluster),
        "scheme_options": dict(case.scheme_options),
        "origin": "simulated",
        "metrics": _metrics(outcome),
        "scaling_factor": _scaling(outcome),
        "critical_s": step.critical_s(),
        "contention_s": step.slowdown_s(),
        "extrapolated": step.outside,
        "plan_digest": step.plan.digest,
        "costs": asdict(target.system.origin),
        "profile": asdict(target.profile.origin),
        "cautions": cautions(target.profile, target.cluster),
        "memory": needed and needed.plain(),
        "exchanges": target.cluster.exchange_text,
        **({"sharding": _shared(case), "reduce_dtype": case.reduce_dtype} if case.sharding != "none" else {}),
    }


def _metrics(outcome: Outcome) -> dict[str, Any]:
    case, _, step = outcome
    return step.metrics(case.world_size * case.batch_size * case.accumulate)


def _scaling(outcome: Outcome) -> float:
    case, target, step = outcome
    return target.profile.alone_s(case.accumulate) / step.iteration_s


def names_of(cases: Sequence[Case]) -> list[str]:
    """Return what tells the cases apart, another name for each."""
    parts = [
        (
            case.scheme,
            case.model,
            str(case.cluster),
            f"x{case.world_size}",
            case.compressor or "",
            f"{case.density}" if case.density else "",
            f"batch {case.batch_size}",
            case.optimizer,
            f"{case.accumulate} micro-steps",
            case.precision,
            _shared(case),
            f"sums in {case.reduce_dtype}",
            "" if case.reshard_after_forward else "blocks stay whole",
            " ".join(f"{key}={value}" for key, value in sorted(case.scheme_options.items())),
        )
        for case in cases
    ]
    differing = [i for i in range(len(parts[0])) if i == 0 or len({part[i] for part in parts}) > 1]
    return [" ".join(part[i] for i in differing if part[i]) for part in parts]


def _title(case: Case, scheme: bool = True) -> str:
    precision = "" if case.precision == "fp32" else f" in {case.precision}"
    shared = "" if case.sharding == "none" else f", {_shared(case)}, sums in {case.reduce_dtype}"
    what = f"{case.model} on {case.cluster}, {case.world_size} ranks, batch {case.batch_size} each{precision}{shared}"
    return f"{case.scheme} for {what}" if scheme else what


def _shared(case: Case) -> str:
    """Return how the model is shared among ranks, in words."""
    found, shards = sharding_of(case), case.shard_compressor
    return "" if found is None else found.text + (f" summed by {shards}" if shards else "")


def _sparse(case: Case) -> str:
    return (case.compressor or "") + (f" at density {case.density:g}" if case.density else "")


def _line(label: str, seconds: float, whole_s: float) -> tuple[str, str, str, str]:
    share = seconds / whole_s
    return label, f"{1e3 * seconds:.2f}", f"{share:.1%}", "#" * round(_BAR * share)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms"
