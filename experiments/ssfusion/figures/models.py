"""SSFusion's tables of models, from shapes: Tables II and IV, and Table V, how much of a training profiling takes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from experiments.common.claims.ledger import claims_of
from experiments.common.claims.verdicts import Outcome, Verdict, compared
from experiments.common.evaluation.gaps import COMMAND as LONG_COMMAND
from experiments.common.evaluation.gaps import LONG
from experiments.common.evaluation.judging import says
from experiments.common.figures.figure import Figure
from experiments.common.figures.style import Table
from experiments.common.figures.tables import Tabular
from experiments.common.validation.published_steps import number
from ssfx.config.compose import compose
from ssfx.core.files import read_json
from ssfx.core.rows import Row
from ssfx.lab.calibration.long_runs import FEWEST_STEPS
from ssfx.lab.config.epochs import with_steps
from ssfx.lab.results.comparisons import metric
from ssfx.perf_model.operator_counts import model_work
from ssfx.schemes import schemes

# ---- Table II: number and size proportion of small and large tensors -------------------------------------------------

THRESHOLD = 102_400
"""Elements; a tensor with fewer is small."""
FEW_LABELS = 10


@dataclass(frozen=True)
class Variant:
    """A network of the table; `labels` replaces the outputs of the last layer where the table needs other ones."""

    claim: str
    name: str
    model: str
    definition: str
    labels: int | None = None


VARIANTS = (
    Variant("resnet152", "ResNet-152", "resnet152_cifar100", "3x3 stem and 100 classes, as for CIFAR-100"),
    Variant("vitlarge", "ViT-large", "vit_large", f"ViT-L/16 with {FEW_LABELS} classes", FEW_LABELS),
    Variant("bertlarge", "BERT-large", "bert_large", "question answering head, no pooler"),
    Variant("gpt2large", "GPT2-large", "gpt2_large", "output layer tied to the embedding"),
)
SHARES = {
    "small.count": "small, number",
    "small.size": "small, size",
    "large.count": "large, number",
    "large.size": "large, size",
}


def _table2(figure: Figure, rows: list[Row]) -> Table:
    """Return the table in percent: per network the four shares, ours and the paper's."""
    table = []
    for network in VARIANTS:
        ours = shares(network)
        for key, heading in SHARES.items():
            claim = f"ssfusion.table2.{network.claim}.{key}"
            first = key == "small.count"
            table.append(
                {
                    "model": network.name if first else "",
                    "tensors": len(_numels(network)) if first else "",
                    "share": heading,
                    "ssfx": f"{ours[key]:.2f}",
                    "paper": f"{number(claim):.2f}",
                    "verdict": compared(claim, number(claim), ours[key], decimals=2).outcome,
                    "network": network.definition if first else "",
                    "claim": claim,
                }
            )
    return table


def _table2_verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return a verdict on every share, and on the threshold in elements and in bytes."""
    found = []
    for network in VARIANTS:
        ours = shares(network)
        for key in SHARES:
            claim, why = f"ssfusion.table2.{network.claim}.{key}", f"With {network.definition}."
            printed = number(claim)
            one = compared(claim, printed, ours[key], decimals=2, unit="%", reason=why)
            of_task = shares(replace(network, labels=None))[key]
            if compared(claim, printed, of_task, decimals=2).outcome != one.outcome:
                other = f"Only with {network.definition}; that of the task has {of_task:.2f} %."
                one = replace(one, outcome="partly", reason=other)
            found.append(one)
    every = all(one.outcome in ("agrees", "partly") for one in found)
    half, whole = (width * THRESHOLD / 1000 for width in (2, 4))
    return [
        *found,
        says(
            "ssfusion.table2.threshold",
            every,
            f"{THRESHOLD:,} elements",
            "This threshold, taken as strictly less, gives every share of the table.",
        ),
        compared(
            "ssfusion.table2.threshold_kb",
            (200.0, 200.0),
            (half, whole),
            relative=0.05,
            unit="KB",
            reason="102,400 elements are 205 KB at two bytes each, and 410 KB in float32.",
        ),
    ]


def shares(network: Variant) -> dict[str, float]:
    """Return the four shares in percent."""
    numels = _numels(network)
    small = [numel for numel in numels if numel < THRESHOLD]
    count, size = 100 * len(small) / len(numels), 100 * sum(small) / sum(numels)
    return {"small.count": count, "small.size": size, "large.count": 100 - count, "large.size": 100 - size}


def _numels(network: Variant) -> list[int]:
    tensors = model_work(network.model).tensors
    if network.labels is None:
        return [spec.numel for spec in tensors]
    head = ("classifier.weight", "classifier.bias")
    return [spec.numel // spec.shape[0] * network.labels if spec.name in head else spec.numel for spec in tensors]


TABLE2 = Figure(
    "ssfusion.table2",
    "Table II: number and size proportion of small and large tensors",
    Tabular(
        {
            "model": "model",
            "tensors": "tensors",
            "share": "share (small: fewer\nthan 102,400 elements)",
            "ssfx": "ssfx\n(%)",
            "paper": "paper\n(%)",
            "verdict": "verdict",
            "network": "network whose shapes give this",
        },
        _table2,
    ),
    _table2_verdicts,
    said=lambda _: (
        f"tensors of fewer than {THRESHOLD:,} elements: "
        + ", ".join(f"{network.name} {shares(network)['small.count']:.2f} %" for network in VARIANTS)
    ),
    notes=(
        "ViT-large matches only with a head of at most ten classes: with the 1,000 classes of ImageNet, the task that "
        "the paper names for it, one more tensor is large and the share of small ones is 62.50 %.",
        "ResNet-152 matches only as it is built for CIFAR-100, and not with the ImageNet head (2.31 % of the size).",
    ),
)


# ---- Table IV: evaluation tasks --------------------------------------------------------------------------------------

UNITS = {"MB": ((1e6, "MB"), (2**20, "MiB")), "GB": ((1e9, "GB"), (2**30, "GiB"))}
"""What the table's units may mean, the decimal meaning first."""


@dataclass(frozen=True)
class Network:
    """Shapes that may be meant; `extra_bytes` are stored with the parameters, as 36 causal masks of 4 MiB."""

    model: str
    definition: str
    extra_bytes: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes in float32."""
        return 4 * sum(spec.numel for spec in model_work(self.model).tensors) + self.extra_bytes


@dataclass(frozen=True)
class Task:
    """A row of the table: what the paper prints, the network of its task, and others that may be meant."""

    claim: str
    kind: str
    model: str
    dataset: str
    printed: str
    network: Network
    others: tuple[Network, ...] = ()

    def fits(self, network: Network) -> str:
        """Return the size as it must be rounded to give the printed number, "" if neither unit does."""
        printed, prefix = self.printed.split()
        for divisor, unit in UNITS[prefix]:
            size = network.nbytes / divisor
            decimals = len(printed.partition(".")[2])
            if compared("", float(printed), size, decimals=decimals).outcome == "agrees":
                return f"{size:.2f} {unit}"
        return ""

    def own(self) -> str:
        """Return the size of the task's network in the unit of the table, taken as decimal."""
        divisor, unit = UNITS[self.printed.split()[1]][0]
        return f"{self.network.nbytes / divisor:.2f} {unit}"


TASKS = tuple(
    Task(
        **{**one, "network": Network(**one["network"]), "others": tuple(Network(**it) for it in one.get("others", ()))}
    )
    for one in read_json(Path(__file__).parents[1] / "tasks.json")
)
CIFAR = {"vgg19"}
"""Rows whose task is on CIFAR-100 but whose size is only that of the ImageNet network."""


def _table4(figure: Figure, rows: list[Row]) -> Table:
    """Return the table: per task the paper's size, ours, and which network has the printed one."""
    table = []
    for task in TASKS:
        outcome, here, why = _outcome(task)
        table.append(
            {
                "model": task.model,
                "dataset": task.dataset,
                "paper": task.printed,
                "ssfx": here or task.own(),
                "parameters": task.network.nbytes // 4,
                "verdict": outcome,
                "network": why,
                "claim": f"ssfusion.table4.{task.claim}",
            }
        )
    return table


def _table4_finding(rows: list[Row]) -> str:
    """Return how many sizes agree, and which do not at all."""
    outcomes = {task: _outcome(task)[0] for task in TASKS}
    agree = sum(outcome == "agrees" for outcome in outcomes.values())
    never = ", ".join(task.model for task, outcome in outcomes.items() if outcome == "disagrees")
    return f"{agree} of {len(TASKS)} sizes are those of the task's network; of none that was tried: {never}"


def _table4_verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return a verdict on every size, and on what the text says about the number of models and tasks."""
    found = []
    for task in TASKS:
        outcome, here, why = _outcome(task)
        said = f"{why[0].upper()}{why[1:]}."
        ours = here or task.own()
        claim = f"ssfusion.table4.{task.claim}"
        found.append(says(claim, outcome, ours, said))
    models = {task.model: task.kind for task in TASKS}
    counts = {
        "models_nine": len(models),
        "models_image": sum(kind == "image" for kind in models.values()),
        "models_nlp": sum(kind == "language" for kind in models.values()),
        "tasks": len(TASKS),
    }
    for name, count in counts.items():
        claim = f"ssfusion.setup.{name}"
        found.append(compared(claim, number(claim), count, decimals=0))
    return found


def _outcome(task: Task) -> tuple[Outcome, str, str]:
    """Return the verdict, the size that fits and the network that has it."""
    if here := task.fits(task.network):
        if task.claim in CIFAR:
            return "partly", here, f"{task.network.definition}, not one for {task.dataset}"
        return "agrees", here, task.network.definition
    for other in task.others:
        if here := task.fits(other):
            return "partly", here, f"{other.definition}; that of the task has {task.own()}"
    tried = " or ".join(f"{one.definition} ({one.nbytes / 1e9:.3f} GB)" for one in (task.network, *task.others))
    return "disagrees", "", f"no network that was tried: {tried}"


TABLE4 = Figure(
    "ssfusion.table4",
    "Table IV: evaluation tasks with the sizes of their models in float32",
    Tabular(
        {
            "model": "model",
            "dataset": "data set",
            "paper": "paper",
            "ssfx": "ssfx",
            "verdict": "verdict",
            "network": "network",
        },
        _table4,
    ),
    _table4_verdicts,
    said=_table4_finding,
    notes=(
        "MB may mean 1,000,000 bytes or 2^20, GB 10^9 or 2^30: a size agrees if it rounds to the printed number in "
        "either.",
        "partly: only another network than that of the task has the printed size.",
    ),
)


# ---- Table V: profiling, measured here and simulated -----------------------------------------------------------------

SCHEME, DENSE = "ssfusion_oi", "ddp"
TRAINED = {
    "resnet152": ("ResNet-152", "resnet152_imagenet"),
    "vit_large": ("ViT-large", "vit_large_imagenet"),
    "bert_large": ("BERT-large", "bert_large_squad"),
    "gpt2_large": ("GPT2-large", "gpt2_large_wikitext103"),
}
"""Models of the paper with its name of them, and the workload that says how long the authors' scripts train."""
NEGLIGIBLE = 0.1
"""Percent: what Table V stays below."""
SAID = (
    "The paper does not say how long it trained: ours is for the epochs of the authors' scripts, and counts the "
    "observed steps without the planning, which was not simulated."
)


def _table5_finding(rows: list[Row]) -> str:
    """Return the range of the shares, simulated and measured."""
    parts = []
    for kind in ("simulated", "measured"):
        found = [line for line in profiling_lines(rows) if line["source"].startswith(kind)]
        if found:
            shares = [float(line["ours"]) for line in found]
            steps = sorted({line["steps"] for line in found})
            run = f"{steps[0]} to {steps[-1]}" if len(steps) > 1 else f"{steps[0]}"
            parts.append(f"{min(shares):.2g} to {max(shares):.2g} % of runs of {run} steps ({kind})")
    return "observing and planning take " + ("; ".join(parts) or "an unknown share: no rows")


def _table5_verdicts(figure: Figure, rows: list[Row]) -> list[Verdict]:
    """Return what the share of every model comes to, and how many are negligible; no length of training is known."""
    ours = _simulated(rows)
    found = []
    for claim in claims_of("ssfusion.table5"):
        share = ours.get(str(claim.conditions.get("model")))
        if share is not None:
            words = f"{share['percent']:.2g} % of {share['steps']} steps"
        elif claim.id.endswith("negligible") and len(ours) == len(TRAINED):
            shares = [one["percent"] for one in ours.values()]
            below = sum(value < NEGLIGIBLE for value in shares)
            words = f"{below} of {len(shares)} below {NEGLIGIBLE:g} %: {min(shares):.2g} to {max(shares):.2g} %"
        else:
            continue
        calibration = next(iter(ours.values()))["calibration"]
        found.append(says(claim.id, "not comparable", words, SAID, source="simulated", calibration=calibration))
    return found


def profiling_lines(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one line per model of the paper that was simulated, then one per model that was trained."""
    table = []
    for name, one in _simulated(rows).items():
        printed = next((c.bounds for c in claims_of("ssfusion.table5") if c.conditions.get("model") == name), None)
        table.append(
            {
                "model": name,
                "paper": f"{printed[0]:g}" if printed else "-",
                "ours": f"{one['percent']:.2g}",
                "observed": one["observed"],
                "steps": one["steps"],
                "profile_s": f"{one['profile_s']:.2g}",
                "plan_s": "not simulated",
                "source": "simulated",
            }
        )
    real = [row for row in rows if not row.case.calibration and row.case.steps >= FEWEST_STEPS]
    real = [row for row in real if row.case.scheme == SCHEME and "profile_share" in row.metrics]
    for model in sorted({row.case.model for row in real}):
        runs = [row for row in real if row.case.model == model]
        middle = {key: median(metric(row, key) for row in runs) for key in ("profile_share", "profile_s", "plan_s")}
        table.append(
            {
                "model": model,
                "paper": "-",
                "ours": f"{100 * middle['profile_share']:.2g}",
                "observed": int(metric(runs[0], "profiled_steps")),
                "steps": runs[0].case.steps,
                "profile_s": f"{middle['profile_s']:.2g}",
                "plan_s": f"{middle['plan_s']:.2g}",
                "source": f"{runs[0].origin.kind}, {len(runs)} runs",
            }
        )
    return table


def _simulated(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return what the observed steps take of the authors' epochs, by the paper's name of the model."""
    found: dict[str, dict[str, Any]] = {}
    defaults: Any = schemes[SCHEME].defaults
    for model, (name, workload) in TRAINED.items():
        mine = [row for row in rows if row.case.calibration and row.case.model == model]
        times = {row.case.scheme: metric(row, "iteration_s") for row in mine}
        if not {SCHEME, DENSE} <= set(times):
            continue
        observed, steps = defaults.profile_iters, _steps(workload, mine[0].case.world_size)
        profile_s = observed * times[DENSE]
        percent = 100 * profile_s / (profile_s + (steps - observed) * times[SCHEME])
        found[name] = {
            "percent": percent,
            "observed": observed,
            "steps": steps,
            "profile_s": profile_s,
            "calibration": mine[0].case.costs,
        }
    return found


@cache
def _steps(workload: str, world_size: int) -> int:
    point = {"workload": workload, "preset": "paper", "cluster": "64gpu", "world_size": world_size}
    return int(with_steps(compose(point))["steps"])


TABLE5 = Figure(
    "ssfusion.table5",
    "Table V: profiling time, share of the time of training",
    Tabular(
        {
            "model": "model",
            "paper": "paper\npercent",
            "ours": "ours\npercent",
            "observed": "observed\nsteps",
            "steps": "all\nsteps",
            "profile_s": "observed\nseconds",
            "plan_s": "planning\nseconds",
            "source": "source",
        },
        lambda _, rows: profiling_lines(rows),
        "Simulated: 64 A100, nominal times, epochs of the authors' scripts. Measured: small models, four ranks.",
    ),
    _table5_verdicts,
    needs={"experiment": ("profiling_overhead", LONG).__contains__},
    command="ssfx run experiment=profiling_overhead cluster=64gpu",
    said=_table5_finding,
    notes=(
        "Measured: the steps that are observed and the planning (costs of exchange and compressor are measured, then "
        f"the plan is made), over all steps of a long run ({LONG_COMMAND}); of a longer one the share is smaller.",
        f"Simulated: {SAID[0].lower()}{SAID[1:]} Observed steps exchange as dense DDP does.",
    ),
)
