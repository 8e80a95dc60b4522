"""What `ssfx doctor --gpu` writes: one file with what agreed, what failed, and the times that simulations then use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ssfx.core.files import loads, read
from ssfx.core.origin import Origin
from ssfx.core.paths import results_dir
from ssfx.core.typed import typed
from ssfx.perf_model.exchange_tables import ExchangeTable
from ssfx.planning.costs import CompressorTimes
from ssfx.planning.profile import Profile

FILE = "gpu.json"


@dataclass(frozen=True)
class Part:
    """One part of the check: its seconds, a line for the reader, and a line for each thing that failed."""

    name: str
    seconds: float
    said: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class GpuRecord:
    """What was seen on the GPUs of one machine; a part that failed leaves its times out."""

    origin: Origin
    """On what hardware, when and with which versions."""
    commit: str
    """The commit of ssfx; empty where it is no checkout."""
    gpus: int
    """How many GPUs there were."""
    sheet: str
    """The data sheet that the GPUs' name fits; empty where none does."""
    parts: tuple[Part, ...]
    codecs: Mapping[str, CompressorTimes]
    """Compressor spec -> its times on one of these GPUs."""
    exchanges: tuple[ExchangeTable, ...]
    """Collectives among all GPUs; empty with one GPU."""
    profiles: tuple[Profile, ...]
    """Steps of models on one GPU, by model and precision."""
    host_us: float | None = None
    """Microseconds in which the host issues a kernel of a training step; None where it was not timed."""

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the parts in which something failed."""
        return tuple(part.name for part in self.parts if part.problems)

    def profile(self, model: str, batch_size: int, optimizer: str, precision: str) -> Profile | None:
        """Return what was measured of a model in a precision; None for another batch size or optimizer."""
        asked = (model, batch_size, optimizer, precision)
        return next(
            (p for p in self.profiles if (p.model, p.batch_size, p.optimizer, p.precision or "fp32") == asked), None
        )

    def to_json(self) -> str:
        """Return the record as JSON text."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> GpuRecord:
        """Return the record that `to_json` wrote."""
        return typed(cls, loads(text))


def record_path() -> Path:
    """Return where the record of this machine's GPUs is, or will be."""
    return results_dir() / "profiles" / FILE


def gpu_record() -> GpuRecord | None:
    """Return what was measured of this machine's GPUs, None where nothing was; RunError for a damaged file."""
    path = record_path()
    if not path.exists():
        return None
    return read(path, GpuRecord.from_json, what="no record that can be read: run ssfx doctor --gpu, or delete it")
