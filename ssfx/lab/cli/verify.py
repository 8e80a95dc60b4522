"""Which files below results/ and in the package are what was written, and accepting those that were changed by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from ssfx.cli.terminal import say
from ssfx.core.case import Case
from ssfx.core.digests import Kind, blessed, blessed_on, check_yaml, loads
from ssfx.core.errors import ConfigError, RunError, SsfxError
from ssfx.core.files import DAMAGED, read, text_of, without_digests, write_atomic
from ssfx.core.paths import data_dir, reference_dir, results_dir
from ssfx.lab.engines.job import rank_result
from ssfx.lab.results import step_logs
from ssfx.lab.results.store import read_rows, row_in
from ssfx.lab.workloads.record import parsed, records_in
from ssfx.perf_model.operator_counts import ModelWork
from ssfx.perf_model.timing_model import TimingModel
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan
from ssfx.planning.profile import Profile

BY_PEOPLE = ("devices.json", "links.json", "costs/mergecomp.json", "costs/ssfusion.json", "component_tables.json")
"""Files of ssfx/data that were not measured or computed, and the lists of components, which a test compares."""
_FOREIGN = ("wandb",)
_STEPS = re.compile(r"rank\d+\.jsonl")
_RESULT = re.compile(r"result-rank\d+\.json")
_BY_FIELDS: dict[tuple[str, ...], Callable[[str], Any]] = {
    ("launch_order",): Plan.from_json,
    ("ready_gap_s",): Profile.from_json,
    ("codecs", "exchange"): TimingModel.from_json,
    ("encode", "exchange"): Costs.from_json,
    ("columns", "rows", "tensors"): ModelWork.from_json,
}
_NAMED = 5


@dataclass
class Verified:
    """What became of the files that were looked at."""

    files: int = 0
    without_digest: list[Path] = field(default_factory=list)
    """Of an earlier version, or of an attempt that has not ended: a change of them cannot be seen."""
    accepted: list[Path] = field(default_factory=list)
    """Changed by hand and accepted since."""
    damaged: list[str] = field(default_factory=list)
    """A line each."""


def kind_of(path: Path) -> Kind | None:
    """Return how a file carries its digest, None for one that has none; that of a step log is in another file."""
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return "rows"
    if path.suffix in (".yaml", ".yml"):
        return "yaml"
    return "json" if path.suffix == ".json" or path.name == "COMPLETE" else None


def check(paths: Iterable[Path]) -> Verified:
    """Return what became of reading every file of results among `paths`."""
    found = Verified()
    without_digests()
    for path in paths:
        found.files += 1
        try:
            _read(path)
            if kind_of(path) != "rows" and blessed_on(text_of(path)):
                found.accepted.append(path)
        except SsfxError as error:
            found.damaged.append(" ".join(str(error).split()))
    found.without_digest = without_digests()
    return found


def everything() -> Iterator[Path]:
    """Yield the files of results and calibrations below results/ and in the package."""
    by_people = {path for pattern in BY_PEOPLE for path in data_dir().glob(pattern)}
    seen: set[Path] = set()
    for folder in (results_dir(), reference_dir(), data_dir()):
        for path in sorted(folder.rglob("*")):
            ours = not set(path.relative_to(folder).parts) & set(_FOREIGN) and not path.name.startswith(".")
            place = path.parent.resolve() / path.name  # of a link itself, not of what it names
            if ours and kind_of(path) and path not in by_people and place not in seen:
                seen.add(place)
                yield path


def _read(path: Path) -> None:
    """Read a file as whoever uses it does; RunError or ConfigError when that is refused."""
    kind = kind_of(path)
    if path.name == "row.json":
        row_in(path)
    elif _STEPS.fullmatch(path.name):
        records_in(path, torn=True)
    elif kind == "rows":
        read_rows(path)
    elif path.name == step_logs.NAME:
        step_logs.check_all(path.parent)
        read(path, loads)
    elif kind == "yaml":
        read(path, check_yaml, digest=False)
    elif path.name == "COMPLETE":
        from ssfx.lab.workloads.checkpoint import check_complete

        check_complete(path.parent)
    elif path.name == "case.json":
        case = read(path, Case.from_json)
        if case.run_id != path.parent.name:
            raise RunError(f"{path}:1: not the case of run {path.parent.name}")
    else:
        read(path, rank_result if _RESULT.fullmatch(path.name) else _content)


def _content(text: str) -> Any:
    """Return the object that JSON `text` is by its fields, or what it holds."""
    found = loads(text)
    names = set(found) if isinstance(found, dict) else set()
    of = next((of for fields, of in _BY_FIELDS.items() if set(fields) <= names), None)
    return found if of is None else of(text)


def print_check(as_json: bool) -> None:
    """Print what became of every file; RunError when one is damaged."""
    found = check(everything())
    if as_json:
        plain = {"files": found.files, "damaged": found.damaged}
        lists = {"without_digest": found.without_digest, "accepted": found.accepted}
        click.echo(json.dumps(plain | {name: list(map(str, paths)) for name, paths in lists.items()}))
    else:
        right = found.files - len(found.damaged) - len(found.without_digest)
        click.secho(f"{found.files:,} files of results and calibrations: {right:,} are what was written", bold=True)
        _list("have no digest, of an earlier ssfx or of an attempt under way", found.without_digest)
        _list("were changed by hand and accepted", found.accepted)
        for line in found.damaged:
            click.secho(line, fg="red")
    if found.damaged:
        raise RunError(f"{len(found.damaged)} of {found.files} files are damaged: {found.damaged[0]}")


def _list(what: str, paths: list[Path]) -> None:
    if paths:
        more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
        say(f"{len(paths):,} {what}: {', '.join(map(str, paths[:_NAMED]))}{more}", "  ", "")


def accept(paths: Iterable[Path]) -> None:
    """Give every file a digest of what it holds now; ConfigError for one that is not whole or keeps no result."""
    for path in paths:
        kind = kind_of(path)
        if kind is None:
            raise ConfigError(f"{path} carries no digest; --bless takes .json, .jsonl and .yaml files of results")
        if _STEPS.fullmatch(path.name):
            try:
                parsed(path, torn=True)
            except RunError as error:
                raise ConfigError(f"{path} cannot be accepted, it is not whole: {error}") from None
            _said(path, step_logs.accept(path))
            continue
        before = text_of(path, ConfigError)
        try:
            after = blessed(before, kind)
            if kind == "json":
                _content(after)
        except DAMAGED as error:
            raise ConfigError(f"{path} cannot be accepted, it is not whole: {error}") from None
        write_atomic(path, after)
        _said(path, after != before)


def _said(path: Path, changed: bool) -> None:
    click.echo(f"{path}: accepted as it is" if changed else f"{path}: it is what was written")
