"""SSFusion's Fig. 12: quality over steps and over time, from long runs of a small network for each of the paper's."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import fmean, median

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.values import BASELINES, METHODS
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.artifacts import long_figure
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import (
    COST,
    LONG,
    UNCONVERGED,
    Compared,
    Task,
    gaps,
    judged_gaps,
    judged_order,
    metric_of,
    no_row,
    task_of,
    tasks,
    there_is,
    usual,
)
from experiments.common.evaluation.noise import FEWEST
from experiments.common.evaluation.quality_panels import Panel, Quality, one_run
from experiments.common.figures.auto import AUTO
from experiments.common.figures.figure import Figure
from experiments.common.figures.paper_words import OWN, scheme_name
from experiments.common.figures.style import scheme_colour
from ssfx.core.rows import Row
from ssfx.lab.calibration.long_runs import FEWEST_STEPS
from ssfx.lab.results.comparisons import DENSE_BASELINE, sent_mark

DENSITY = 0.01
"""The paper's."""
TIMES = "convergence_times"
"""The experiment of simulated steps of the paper's networks on 64 GPUs."""
QUESTIONS = "question_quality"
"""The experiment of a BERT, which learns its task in fewer steps than long runs have."""


@dataclass(frozen=True)
class Network:
    """One of the paper's networks: its panel, ours in its place with words, the word in claims, our model of its steps.

    `density`, `experiment`: of its runs.
    """

    panel: str
    paper: str
    ours: str
    words: str
    claim: str
    timed: str
    density: float = DENSITY
    experiment: str = LONG

    @property
    def title(self) -> str:
        """The panel's letter, our network, and the one that it stands for."""
        return f"({self.panel}) {self.words}, for the paper's {self.paper}"


NETWORKS = (
    Network(
        "a", "ResNet-152 on CIFAR-100", "resnet20_cifar10", "ResNet-20 on CIFAR-10", "resnet152", "resnet152_cifar100"
    ),
    Network("b", "VGG-19 on CIFAR-100", "vgg_small_cifar10", "small VGG on CIFAR-10", "vgg19", "vgg19_cifar100"),
    Network(
        "c",
        "LSTM of 86 M on WikiText-2",
        "lstm_wikitext2_small",
        "LSTM of 0.5 M on WikiText-2",
        "lstm",
        "lstm_wikitext2",
    ),
    Network(
        "d",
        "BERT on SQuAD",
        "bert_mini",
        "BERT of 2 layers on generated questions",
        "bert",
        "bert_base",
        density=0.05,  # of the authors' launch scripts, and of the workload: 1 % of so few elements is none of a tensor
        experiment=QUESTIONS,
    ),
)
OURS = OWN[-1]
SHOWN = (DENSE_BASELINE, *BASELINES, "per_tensor", "fused_all", OURS, AUTO)
"""The last is not of the paper and in no verdict."""
ORDERED = ("oktopk", "spardl", "omgs", "cupcake")
"""Rivals that the paper has below SSFusion."""
LAYERWISE = ("hipress", "espresso")
"""Rivals that the paper has beside it."""


def _panels(rows: list[Row]) -> list[Panel]:
    """Return, per network, the curves of the schemes over steps and time, and their quality over dense training's."""
    found, lacking = tasks(long_runs(rows), scheme_of), missing_runs(rows)
    colours = {scheme: scheme_colour(scheme) for scheme in SHOWN}
    return [
        Panel(
            one.title,
            task_of(found, one.ours),
            colours,
            DENSE_BASELINE,
            printed(one.claim),
            (DENSE_BASELINE, OURS),
            lacking.get(one.ours, ""),
            step_times(rows, one.timed),
            f" of {one.paper.partition(' ')[0]} on 64 GPUs (simulated)",
        )
        for one in NETWORKS
    ]


def long_runs(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that were trained for FEWEST_STEPS or more, or on questions; the others are simulated steps."""
    return [
        row
        for row in rows
        if row.case.evaluate
        and (row.case.experiment == QUESTIONS or (row.case.experiment == LONG and row.case.steps >= FEWEST_STEPS))
    ]


def step_times(rows: Iterable[Row], model: str) -> dict[str, float]:
    """Return the simulated seconds of a step of `model` by scheme."""
    own = [row for row in rows if row.case.experiment == TIMES and row.case.model == model]
    return {row.case.scheme: float(row.metrics["iteration_s"] or 0.0) for row in own}


def missing_runs(rows: Sequence[Row]) -> dict[str, str]:
    """Return for each of our networks which runs it lacks, how long they take and what makes them."""
    long = long_runs(rows)
    found = tasks(long, scheme_of)
    lacking = {}
    for one in NETWORKS:
        task = task_of(found, one.ours)
        seeds = {name: len(task.methods.get(name, ())) if task else 0 for name in SHOWN if name != AUTO}
        missing = [name for name, count in seeds.items() if count < FEWEST]
        if missing:
            runs = sum(FEWEST - seeds[name] for name in missing)
            minutes = [took for row in long if (took := _minutes(row)) and row.case.model == one.ours]
            each = median(minutes or [took for row in long if (took := _minutes(row))] or [4.0])
            network = f"workload={one.ours} " if one.experiment == LONG else ""
            where = " data.root=DIR" if one.experiment == LONG else ""
            lacking[one.ours] = (
                f"{runs} runs, about {runs * each:.0f} minutes on two cores: ssfx run experiment={one.experiment} "
                f"{network}scheme={','.join(missing)} density={one.density:g} repeats={FEWEST}{where}"
            )
    return lacking


def _minutes(row: Row) -> float:
    """Return how long a run took, 0 where its row does not say so."""
    started = row.manifest.get("started")
    took = datetime.fromisoformat(row.origin.date) - datetime.fromisoformat(started) if started else None
    return took.total_seconds() / 60 if took else 0.0


def _lacks(rows: list[Row]) -> list[str]:
    """Return a line for each network that lacks runs, and one where the times of steps are missing."""
    lacking = missing_runs(rows)
    lines = [f"{one.title}: {lacking[one.ours]}" for one in NETWORKS if one.ours in lacking]
    timeless = [one.paper for one in NETWORKS if not step_times(rows, one.timed)]
    return [*lines, f"no steps of {', '.join(timeless)}: ssfx run experiment={TIMES}"] if timeless else lines


def _finding(rows: list[Row]) -> str:
    """Return, per task, the median quality of every scheme beside that of dense training of the same seeds.

    It also says what was sent instead of what was asked for, and which schemes trained alike in every digit.
    """
    parts = []
    for task in tasks(long_runs(rows), scheme_of):
        name = metric_of(next(iter(task.methods.values()))[0])
        said = [_ended(task, scheme, name) for scheme in SHOWN if scheme in task.methods]
        parts.append(f"{task.model} ({name}): {', '.join(said)}")
        shown = {scheme: task.methods[scheme] for scheme in SHOWN if scheme in task.methods}
        for names, seeds in one_run(shown).items():
            of = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(seeds)))}"
            parts.append(f"{' and '.join((', '.join(names[:-1]), names[-1]))} of {of} are one run")
    return f"in brackets dense training of the same seeds: {'; '.join(parts)}" if parts else "no long row"


def _ended(task: Task, scheme: str, metric: str) -> str:
    """Return a scheme's median quality, and in brackets that of dense training of its seeds and what it sent."""
    shared = task.shared(scheme, DENSE_BASELINE)

    def middle(method: str) -> str:
        own = [row for row in task.methods[method] if not shared or row.case.seed in shared]
        return f"{median(float(row.metrics[metric] or 0.0) for row in own):.3g}"

    if scheme == DENSE_BASELINE:
        return f"{scheme} {middle(scheme)}"
    sent = sent_mark(task.methods[scheme], task.methods.get(DENSE_BASELINE, ()))
    beside = [middle(DENSE_BASELINE) if shared else "no dense run of its seed", f"sent {sent}" if sent else ""]
    return f"{scheme} {middle(scheme)} ({'; '.join(filter(None, beside))})"


def _verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return sign and rank of every gap to dense training, and verdicts on the orders that the paper states."""
    every = tasks(long_runs(rows), scheme_of)
    found: list[Verdict] = []
    shown: list[Task] = []
    subjects = {ours: name for name, ours in reversed(METHODS.items())}
    for one in NETWORKS:
        before = len(found)
        there = task_of(every, one.ours)
        own = [there] if there else []
        task = there if there and there.knows(DENSE_BASELINE) else None
        start = f"ssfusion.exp2.{one.claim}"
        claims = {scheme: f"{start}.{subjects[scheme]}" for scheme in (OURS, *ORDERED)}
        small = "" if task else f" on a small {one.paper.partition('-')[0].partition(' ')[0]}"
        found += judged_gaps(
            own,
            claims,
            printed(one.claim),
            stands_for=one.paper,
            missing=lambda name, small=small: scheme_name(name) + small,  # type: ignore[misc]
        )
        dense = {f"dense training{small}": there_is(own, DENSE_BASELINE)}
        found.append(_level(f"{start}.dense", task) if task else no_row(f"{start}.dense", dense))
        if task and task.knows(OURS, DENSE_BASELINE):
            shown.append(task)
            found.append(_order(f"{start}.order", task))
        else:
            found.append(no_row(f"{start}.order", {f"SSFusion{small}": there_is(own, OURS)}))
        if one.experiment != LONG:
            found[before:] = [replace(own, command=f"ssfx run experiment={one.experiment}") for own in found[before:]]
    if shown:
        # What SSFusion loses here is held against nothing: the paper speaks of networks that converged.
        here = "; ".join(f"{task.model} {task.gap(OURS, DENSE_BASELINE)}" for task in shown)
        headline = "ssfusion.headline.accuracy"
        found.append(Verdict(headline, "not comparable", here, "measured", "", UNCONVERGED, LONG_COMMAND, COST))
        found.append(_beside("ssfusion.exp2.layerwise_equal", shown))
    return found


def scheme_of(row: Row) -> str:
    """Return the scheme of a row as the paper ran it: at its network's density, with the usual memory."""
    case = row.case
    density = next((one.density for one in NETWORKS if one.ours == case.model), DENSITY)
    same = case.density in (None, density) and case.compressor in (None, "dgc", "topk") and usual(row)
    layered = case.scheme != "per_tensor" or case.compressor == "dgc"
    return case.scheme if case.scheme == AUTO or (case.scheme in SHOWN and same and layered) else ""


def printed(claim_word: str) -> dict[str, float]:
    """Return the final quality that the paper prints for a network, relative to its dense training, by scheme."""
    start = f"ssfusion.exp2.{claim_word}."
    found = {}
    for claim in (claim for claim in claims_by_id().values() if claim.id.startswith(start)):
        if claim.bounds:
            scheme = DENSE_BASELINE if claim.subject == "dense" else METHODS.get(claim.subject, "")
            found[scheme] = claim.bounds[0], claim.unit
    dense, _ = found.pop(DENSE_BASELINE)
    return {scheme: dense / value if unit == "ppl" else value / dense for scheme, (value, unit) in found.items()}


def _level(claim: str, task: Task) -> Verdict:
    """Return our dense quality, which no level of another network compares with."""
    rows = task.methods[DENSE_BASELINE]
    name = metric_of(rows[0])
    words = f"{name} {fmean(float(row.metrics[name] or 0.0) for row in rows):.3g}"
    return Verdict(claim, "not comparable", words, "measured", "", f"the level of {task.words}", LONG_COMMAND, COST)


def _order(claim: str, task: Task) -> Verdict:
    """Return whether SSFusion is not above dense training, and above every rival."""
    pairs: list[Compared] = [
        ("dense over SSFusion", task.gap(DENSE_BASELINE, OURS), "not below"),
        *(
            (f"SSFusion over {scheme_name(one)}", task.gap(OURS, one), "above")
            for one in ORDERED
            if task.knows(OURS, one)
        ),
    ]
    missing = {scheme_name(one): there_is([task], one) for one in ORDERED if not task.knows(OURS, one)}
    return judged_order(claim, pairs, task.words, missing)


def _beside(claim: str, shown: Sequence[Task]) -> Verdict:
    """Return whether HiPress and Espresso end where SSFusion does."""
    pairs = gaps(shown, *((OURS, one, "equal") for one in LAYERWISE), named=scheme_name)
    missing = {
        scheme_name(one): there_is(shown, one) for one in LAYERWISE if not any(task.knows(OURS, one) for task in shown)
    }
    return judged_order(claim, pairs, shown, missing)


FIG12 = long_figure(
    "ssfusion.fig12",
    "Fig. 12: quality during and after training, a small network for each of the paper's four",
    Quality(_panels, scheme_name),
    _verdicts,
    about=("ssfusion.fig12", "ssfusion.headline.accuracy"),
    needs={"experiment": (LONG, QUESTIONS, TIMES).__contains__},
    said=_finding,
    lacks=_lacks,
    notes=(
        f"A small network stands for each of the paper's, trained for {FEWEST_STEPS:,} steps or more: what is judged "
        "is the sign and the rank of a gap to dense training, not its level. A BERT learns its questions sooner.",
        "In the middle, the same curves over the time that so many steps of the paper's network would take, simulated "
        f"on 64 GPUs with nominal times (`ssfx run experiment={TIMES}`).",
        "On the right, every run over dense training of its seed; a bar is the median. `ssfx figures "
        "ssfusion.fig12` prints which runs are missing, how long they take, and the command.",
    ),
)
