"""Steps of published methods over dense steps, as others measured them, held against what the same words give here.

`data/published_gains.json` has every row with source, place and grade, and the words of `ssfx simulate` that ask for
it, or why nothing can be asked. No cost was read off these rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from statistics import fmean

from experiments.common.validation.groups import Group, parts_by
from experiments.common.validation.scores import Pair
from ssfx.advice.cases import simulate_case
from ssfx.config.simulations import resolve_simulations
from ssfx.core.errors import ConfigError
from ssfx.core.files import loads, read
from ssfx.core.paths import data_dir
from ssfx.core.typed import typed

NAME = "gains"
TITLE = "published gains"
"""What the group is called."""


@dataclass(frozen=True)
class Gain:
    """A published gain, by the columns of the file: `gain` is a dense step over one of the method.

    `setting`, `plain` and `compressing`: words of `ssfx simulate` for both steps; empty where `why` says why not. In
    the share `dense_steps` of a training nothing was compressed, and `gain` is that of the whole.
    """

    id: str
    source: str
    method: str
    model: str
    gpus: int | None
    gpu: str
    gbps: float | None
    gain: float
    setting: str
    plain: str
    compressing: str
    dense_steps: float
    why: str

    @property
    def panel(self) -> str:
        """What may be compared with each other: one model on one network."""
        devices = " ".join(str(one) for one in (self.gpus, self.gpu) if one) or "GPUs not said"
        rate = "" if self.gbps is None else f", {self.gbps:g} Gbit/s"
        return f"{self.source}: {self.model}, {devices}{rate}"


@dataclass(frozen=True)
class Asked:
    """A published gain, what the simulator says, and the reason in a clause: of the difference, or of no answer."""

    row: Gain
    ours: float | None
    why: str

    @property
    def right_sign(self) -> bool:
        """True where the simulator says gain or loss as published."""
        return self.ours is not None and (self.ours > 1) == (self.row.gain > 1)


@cache
def rows() -> tuple[Gain, ...]:
    """Return every row of the file."""
    held = read(data_dir() / "published_gains.json", loads)
    named = [dict(zip(held["columns"], row, strict=True)) for row in held["rows"]]
    return tuple(typed(Gain, {key: one[key] for key in Gain.__dataclass_fields__}) for one in named)


@cache
def answers() -> tuple[Asked, ...]:
    """Return every row with what the simulator says; words that it refuses are a reason, as it gives it."""
    return tuple(map(_asked, rows()))


def _asked(row: Gain) -> Asked:
    if not row.setting:
        return Asked(row, None, row.why)
    try:
        dense_s, method_s = (_step_s(f"{row.setting} {one}") for one in (row.plain, row.compressing))
    except ConfigError as error:
        return Asked(row, None, f"refused: {error}")
    share = row.dense_steps
    return Asked(row, 1 / (share + (1 - share) * method_s / dense_s), row.why)


@cache
def _step_s(words: str) -> float:
    (case,) = resolve_simulations(words.split())
    return simulate_case(case)[1].iteration_s


def gains() -> list[Group]:
    """Return the group of all rows that can be asked, with a part for each source."""
    asked = [one for one in answers() if one.ours is not None]
    pairs = tuple(_pair(one, one.ours) for one in asked if one.ours is not None)
    sources = dict.fromkeys(one.row.source for one in asked)
    notes = (
        f"{in_words(asked)}; {len(answers()) - len(asked)} of {len(answers())} rows cannot be asked",
        "what code of its time a source ran, its words do not say: TensorFlow's selections and quantisers (grace)",
    )
    return [
        Group(
            f"{TITLE}: dense steps over steps of the method, as others measured them",
            f"data sheets and links; MPI and compressors of 2021 by MergeComp ({_MPI}); none of the scored rows",
            "rows of ssfx/data/published_gains.json that can be asked",
            pairs,
            parts_by(sources, lambda pair, source: pair.panel.startswith(f"{source}: ")),
            notes,
            unit="x",
            over_dense=True,
        )
    ]


_MPI = "cluster=grace_10gbe cluster.calibration=published"


def _pair(one: Asked, ours: float) -> Pair:
    return Pair(one.row.panel, one.row.method, ours, one.row.gain, whole_step=False)


def log_error(asked: Sequence[Asked]) -> float:
    """Return the mean of |log(ours / theirs)| over rows with an answer."""
    return fmean(abs(log(one.ours / one.row.gain)) for one in asked if one.ours is not None)


def right_signs(asked: Sequence[Asked]) -> float:
    """Return the share of rows with an answer that has the published sign."""
    return fmean(one.right_sign for one in asked if one.ours is not None)


def in_words(asked: Sequence[Asked]) -> str:
    """Return in a clause how far off answers are."""
    right = sum(one.right_sign for one in asked)
    return f"mean |log ratio| {log_error(asked):.2f} over {len(asked)} rows, sign right in {right}"


def lines() -> list[tuple[str, ...]]:
    """Return the cells of HEADINGS for every row, those that cannot be asked last, with their reason."""
    known = sorted(answers(), key=lambda one: one.ours is None)
    return [
        (
            one.row.id,
            one.row.panel,
            one.row.method,
            f"{one.row.gain:.2f}",
            *(("-", "-") if one.ours is None else (f"{one.ours:.2f}", f"{one.ours / one.row.gain:.2f}")),
            one.why,
        )
        for one in known
    ]


HEADINGS = ("row", "setting", "method", "theirs", "ours", "ratio", "why")
