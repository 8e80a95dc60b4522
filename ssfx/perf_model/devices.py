"""Devices by data sheet: peak rates, the share of them that is assumed to be reached, and memory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from ssfx.core.errors import unknown
from ssfx.core.paths import data_dir


@dataclass(frozen=True)
class Device:
    """One computing device with float32 data.

    `conv_flops` and `matmul_flops` are peak FLOP/s in the arithmetic that the framework uses by default; `*_efficiency`
    the shares of them, and of `memory_bytes_s`, that are assumed to be reached (1: all). `launch_s` is added for every
    kernel. `pcie_gbps` is one direction of the link to the host (0: the device is the host), `memory_gib` what the
    device has. `source` says where the rates come from, `assumption` what the arithmetic is.
    """

    name: str
    title: str
    conv_flops: float
    matmul_flops: float
    memory_bytes_s: float
    conv_efficiency: float
    matmul_efficiency: float
    memory_efficiency: float
    launch_s: float
    memory_gib: float
    pcie_gbps: float
    source: str
    assumption: str

    def __post_init__(self) -> None:
        if min(self.conv_flops, self.matmul_flops, self.memory_bytes_s, self.memory_gib) <= 0:
            raise ValueError(f"device {self.name}: rates and memory must be positive")
        if not all(0 < share <= 1 for share in (self.conv_efficiency, self.matmul_efficiency, self.memory_efficiency)):
            raise ValueError(f"device {self.name}: efficiencies must be in (0, 1]")
        if self.launch_s < 0 or self.pcie_gbps < 0:
            raise ValueError(f"device {self.name}: launch_s and pcie_gbps must not be negative")

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
    """Return the device called `name`; ConfigError with the nearest known one."""
    table = _table()
    if name not in table:
        raise unknown("device", name, table)
    return Device(name=name, **table[name])


def device_names() -> list[str]:
    """Return the names of all devices of the table, sorted."""
    return sorted(_table())


@cache
def _table() -> dict[str, Any]:
    return dict(json.loads((data_dir() / "devices.json").read_text()))
