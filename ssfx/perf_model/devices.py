"""Devices by data sheet: peak rates, the share of them that is assumed to be reached, and memory."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ssfx.core.errors import ConfigError
from ssfx.core.files import loads, read
from ssfx.core.paths import data_dir
from ssfx.core.plausible import plausible
from ssfx.core.typed import typed
from ssfx.core.yaml_file import check_keys, read_yaml

TENSOR_CONV_EFFICIENCY = 0.3
"""Share of the tensor cores' peak in convolutions: the one assumed of TF32, where it is torch's default."""

TENSOR_MATMUL_EFFICIENCY = 0.8
"""The same in matrix products: the one assumed of float32, because no better source is known."""

HOST_S = 25e-6
"""Seconds in which the host issues a kernel of an eager training step, where it was not measured: that of one H200 took
16 to 40 us (docs/validation.md)."""

_MUST = ("conv_flops", "matmul_flops", "memory_bytes_s", "memory_gib", "pcie_gbps")
_USUAL = {
    "conv_efficiency": 0.7,
    "matmul_efficiency": 0.8,
    "memory_efficiency": 0.75,
    "launch_s": 4e-6,
    "host_s": HOST_S,
    "inside": {"pcie": "pcie4_peer"},
}
_MAY = (*_USUAL, "title", "source", "assumption", "tensor_source", "tensor_flops", "winograd")
"""The keys that a file of a device must and may have; see docs/clusters.md."""

SIXTEEN_BIT = ("bf16", "fp16", "fp8")
"""Precisions in which activations have two bytes; fp8 has one only inside of matrix products."""


@dataclass(frozen=True)
class Device:
    """One computing device with float32 data. ConfigError for rates, ValueError for shares that cannot be."""

    name: str
    """As a cluster names it: "a100"."""
    title: str
    """For people."""
    conv_flops: float
    """Peak FLOP/s of convolutions in the arithmetic that the framework uses by default."""
    matmul_flops: float
    """The same of matrix products."""
    memory_bytes_s: float
    """Peak bytes/s of its memory."""
    conv_efficiency: float
    """Share of `conv_flops` that is assumed to be reached, in (0, 1]."""
    matmul_efficiency: float
    """The same of `matmul_flops`."""
    memory_efficiency: float
    """The same of `memory_bytes_s`."""
    launch_s: float
    """Seconds added for every kernel."""
    memory_gib: float
    """GiB of memory."""
    pcie_gbps: float
    """Gbit/s of one direction of the link to the host; 0: the device is the host."""
    source: str
    """Where the rates come from."""
    assumption: str
    """What the arithmetic is."""
    tensor_flops: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Peak dense FLOP/s of its tensor cores, with float32 sums, by precision: those it has of tf32, bf16, fp16, fp8."""
    tensor_source: str = ""
    """Where these rates come from."""
    host_s: float = HOST_S
    """Seconds in which its host issues one kernel of a training step; 0: it need not, as a captured graph or compiled
    code does it, or as the device is the host."""
    inside: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Kinds of links (of links.json) to other such devices of its node, by their family: "pcie", "nvlink"."""
    winograd: bool = False
    """Whether 3x3 convolutions take fewer multiplications than counted, as where float32 is not on tensor cores."""
    precision: str = "fp32"
    """What `conv_flops`, `matmul_flops` and `activation_bytes` are of; see `at`."""
    activation_bytes: int = 4
    """Bytes of an element of what layers hand on."""

    def __post_init__(self) -> None:
        for key in ("conv_flops", "matmul_flops", "memory_bytes_s", "memory_gib", "launch_s", "pcie_gbps", "host_s"):
            plausible(key, getattr(self, key), f"device {self.name}: {key}")
        for precision, peak in self.tensor_flops.items():
            plausible("tensor_flops", peak, f"device {self.name}: tensor_flops.{precision}")
        if not all(0 < share <= 1 for share in (self.conv_efficiency, self.matmul_efficiency, self.memory_efficiency)):
            raise ValueError(f"device {self.name}: efficiencies must be in (0, 1]")

    def issued_in(self, host_s: float | None) -> Device:
        """Return the device with a host that issues a kernel in `host_s`; None: as its sheet says."""
        return self if host_s is None or not self.pcie_gbps else replace(self, host_s=host_s)

    def at(self, precision: str) -> Device:
        """Return the device as it computes in `precision`, as runs do: tf32 in products too, bf16 and fp16 by autocast.

        In fp8 are matrix products alone; everything else is in bf16 then.

        fp32 is the device itself. Tensor cores reach stated shares of their peak, but at least what float32 reaches
        here. ConfigError for a precision that the device has no tensor cores for.
        """
        if precision == "fp32":
            return self
        if precision not in self.tensor_flops:
            works = " or ".join(("fp32", *self.tensor_flops))
            raise ConfigError(
                f"precision={precision} needs tensor cores that compute in it, which device {self.name} has not; "
                f"use precision={works}"
            )
        peak = self.tensor_flops[precision]
        conv_peak = self.tensor_flops["bf16"] if precision == "fp8" else peak
        if precision in SIXTEEN_BIT:
            what = "activations have 2 bytes; weights, gradients, messages and the optimizer's step stay float32"
        else:
            what = "everything in memory and in messages is float32"
        if precision == "fp8":
            what = f"all matrix products in fp8 and everything else in bf16: {what}"
        return replace(
            self,
            conv_flops=conv_peak,
            matmul_flops=peak,
            conv_efficiency=max(TENSOR_CONV_EFFICIENCY, self.conv_flops * self.conv_efficiency / conv_peak),
            matmul_efficiency=max(TENSOR_MATMUL_EFFICIENCY, self.matmul_flops * self.matmul_efficiency / peak),
            source=f"{self.source}; tensor cores: {self.tensor_source}",
            assumption=f"precision={precision}: tensor cores in convolutions and matrix products; {what}",
            precision=precision,
            activation_bytes=2 if precision in SIXTEEN_BIT else 4,
            winograd=False,
        )

    @property
    def efficiency(self) -> str:
        """The assumed shares of the peak rates in words."""
        return (
            f"{self.conv_efficiency:.0%} of {self.conv_flops / 1e12:.3g} TFLOP/s in convolutions, "
            f"{self.matmul_efficiency:.0%} of {self.matmul_flops / 1e12:.3g} TFLOP/s in matrix products, "
            f"{self.memory_efficiency:.0%} of {self.memory_bytes_s / 1e9:.0f} GB/s elsewhere, "
            f"{self.launch_s * 1e6:g} us a kernel"
        )


def device(name: str) -> Device:
    """Return the device called `name`, as in the table in any case and punctuation, or the one in the YAML file `name`.

    ConfigError with the nearest of the table, or for a file that describes no device.
    """
    if _is_file(name):
        return _device_of(Path(name).expanduser())
    table = _table()
    plain = {_letters(sheet): sheet for sheet in table}
    sheet = name if name in table else plain.get(_letters(name), sheet_named(re.sub(r"_(?=\d+gb?$)", "-", name)))
    if sheet is None:
        raise ConfigError(f"{_unknown(name)}; or describe yours in FILE.yaml: {', '.join(_MUST)}")
    memory = re.search(r"(\d+) ?gi?b$", name.lower())
    if sheet != name and memory and abs(int(memory[1]) / (has := table[sheet]["memory_gib"]) - 1) > 0.1:
        raise ConfigError(f"unknown device {name!r}; nearest is {sheet}, of {has:g} GB: write it, and mind FITS")
    return Device(name=sheet, **table[sheet])


def _unknown(name: str) -> str:
    """Return what to say of a name: those with its digits that it resembles, since others differ in arithmetic."""
    digits = re.findall(r"\d", name)
    kin = [sheet for sheet in _table() if digits and re.findall(r"\d", sheet) == digits]
    found = [sheet for sheet in kin if _letters(sheet) in _letters(name) or _letters(name) in _letters(sheet)]
    words = _words(name.replace("_", " "))
    if other := [sheet for sheet in found if _other_form(_words(_table()[sheet]["title"]), words)]:
        title = _table()[other[0]]["title"]
        return f"unknown device {name!r}; {other[0]} is {title}, which is faster: write it, or the nearest by numbers"
    if len(found) + len(near := difflib.get_close_matches(name.lower(), kin, cutoff=0.8)):
        return f"unknown device {name!r}; did you mean {' or '.join(dict.fromkeys(map(repr, found + near)))}?"
    if len(kin) == 1 and len(digits) > 2:
        return f"unknown device {name!r}; nearest by name is {kin[0]}, the {_table()[kin[0]]['title']}: write it"
    which = "write the nearest by numbers" if digits else "write which one, as h100 or rtx4090"
    return f"unknown device {name!r}; {which}, ssfx list devices has all by their rates"


def has_sheet(name: str) -> bool:
    """Return whether `name` is a device of the table or a file of one."""
    return name in _table() or _is_file(name)


def device_names() -> list[str]:
    """Return the names of all devices of the table, sorted."""
    return sorted(_table())


def device_lines() -> list[tuple[str, ...]]:
    """Return name, memory, its rate, peak in bf16, links inside a node and title of every device, the fastest first."""
    return [
        (
            name,
            f"{one['memory_gib']:g}",
            f"{one['memory_bytes_s'] / 1e9:.0f}",
            f"{one.get('tensor_flops', {}).get('bf16', 0) / 1e12:.0f}",
            ", ".join(one["inside"].values()),
            one["title"],
        )
        for name, one in sorted(_table().items(), key=lambda item: -_rate(item[1]))
    ]


def _rate(sheet: Mapping[str, Any]) -> float:
    """Return the FLOP/s of a device in 16 bits, else in float32."""
    rates = sheet.get("tensor_flops", {})
    return float(rates.get("bf16") or rates.get("fp16") or sheet["matmul_flops"])


def sheet_named(name: str) -> str | None:
    """Return the data sheet that a GPU's own name fits, as "NVIDIA A100-SXM4-40GB" does; None where none does."""
    words = _words(name)
    titled = {sheet: _words(one["title"]) for sheet, one in _table().items() if sheet != "cpu"}
    fitting = [sheet for sheet, title in titled.items() if _models(title) <= words and not _other_form(title, words)]
    return max(fitting, key=lambda sheet: len(titled[sheet] & words), default=None)


def _other_form(title: set[str], words: set[str]) -> bool:
    """Return whether a sheet is of modules, and the words are of a card of that name, which is slower."""
    return any("sxm" in word for word in title) and bool(words & {"pcie", "nvl"})


def _models(words: set[str]) -> set[str]:
    """Return the words that name a model: they hold a digit and are no size of memory."""
    return {word for word in words if any(map(str.isdigit, word)) and not word.endswith("gb") and "sxm" not in word}


def _words(name: str) -> set[str]:
    return set(name.lower().replace("-", " ").replace(",", " ").split()) - {"nvidia", "geforce", "tesla"}


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _is_file(name: str) -> bool:
    return name.endswith((".yaml", ".yml"))


def _device_of(path: Path) -> Device:
    """Return the device that a file of the user's describes; shares that it leaves out are those of GPUs here."""
    said = dict(read_yaml(path))
    check_keys(said, dict.fromkeys((*_MUST, *_MAY)), path)
    if missing := [key for key in _MUST if key not in said]:
        raise ConfigError(f"{path} has no {missing[0]}, without which it describes no device")
    check_keys(said.get("tensor_flops") or {}, dict.fromkeys(("tf32", *SIXTEEN_BIT)), path, "tensor_flops.")
    given = {"title": path.stem, "source": f"the file {path}", "assumption": "as its file says", **_USUAL, **said}
    given["tensor_source"] = given.get("tensor_source", given["source"])
    try:
        return typed(Device, {**given, "name": str(path)})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from None


@cache
def _table() -> dict[str, Any]:
    return dict(read(data_dir() / "devices.json", loads))
