"""Nominal times of every compressor on any device: what a call issues and moves, at the device's stated rates.

`data/costs/counted.json` says how many kernels a call of the implementation here launches and how many bytes they read
and write for an element, on a GPU and on the host; benchmarks/count_operators.py counts them. A compressor of the
user's says it itself, by `cost()`, or its operators are counted on a sample. Times follow by roofline from the data
sheets of devices; all assumptions are in docs/cluster_times.md. Published times replace them where a paper prints some.
`data/costs/fused.json` has the quantisers as one launch of Triton; codes of papers run them as counted.json says. It is
a file of its own so that identities of rows that were simulated before it was there stay what they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ssfx.compressors import Compressor, Cost, build, compressors
from ssfx.compressors.quantizer import coding_of
from ssfx.core.files import loads, read
from ssfx.core.origin import Origin
from ssfx.core.paths import data_dir
from ssfx.core.spec import Spec, name_of
from ssfx.perf_model.devices import Device
from ssfx.planning.costs import CompressorTimes, Curve

RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Ranks for which low-rank compressors have times of their own; another one takes those of the default rank."""
CALLS_PER_COLUMN = 4
"""Kernels of an orthonormal basis by column: a reflection is found and applied, then again to form the basis."""
OPERATOR, LAUNCH = 0.52, 1.48
"""Seconds of the host for an operator of torch without autograd, and for a Triton kernel, which Python launches, over
those for a kernel of a training step: 13 and 37 us beside 25, by 21 compressors and 12 steps on one H200."""


@dataclass(frozen=True)
class CompressorRates:
    """What a device does in a second: seconds of starting a kernel, bytes and float32 operations at stated shares.

    `host_s`: seconds in which its host issues a kernel of a training step; 0 where it is the device, or runs ahead.
    """

    call_s: float
    bytes_s: float
    flops: float
    host_s: float

    @classmethod
    def of(cls, device: Device, host_bound: bool = False) -> CompressorRates:
        """Return the rates of `device` at the efficiencies of its table, whose host runs ahead or holds it."""
        return cls(
            device.launch_s,
            device.memory_bytes_s * device.memory_efficiency,
            device.matmul_flops * device.matmul_efficiency,
            device.host_s if host_bound and device.pcie_gbps else 0.0,
        )

    def affine(self, counted: Mapping[str, Any], rank: int | None = None, copies: int = 1) -> Curve:
        """Return the seconds of one counted job over its work units, its calls made `copies` times.

        A matrix product takes the longer of moving its data and computing; with a rank, a unit is an element of a
        matrix times the rank. A job ends when the device has done it, and not before the host issued it.
        """
        calls = counted["calls"]
        element_s = counted["nbytes"] / self.bytes_s
        if rank is not None:
            calls += CALLS_PER_COLUMN * rank * bool(counted.get("bases"))
            element_s += sum(max(one / self.bytes_s, 2 * rank / self.flops) for one in counted.get("products", ()))
        launches = counted.get("launches", 0)
        issued_s = self.host_s * (OPERATOR * (calls - launches) + LAUNCH * launches)
        return Curve.affine(copies * calls * self.call_s, element_s / (rank or 1)).at_least(copies * issued_s)


def nominal_codecs(on: Device, host: Device, world_size: int, host_bound: bool = False) -> dict[str, CompressorTimes]:
    """Return the times of every compressor on device `on` with a host of cores `host`; low-rank ones also by rank.

    A GPU takes what the CUDA path issues, a CPU what the host path does. Decoding issues its kernels for the message of
    every rank, or once where messages were added up.
    """
    return _times(_known(), on, host, world_size, host_bound)


def _times(
    known: Mapping[str, Any], on: Device, host: Device, world_size: int, host_bound: bool
) -> dict[str, CompressorTimes]:
    rates, host_rates = CompressorRates.of(on, host_bound), CompressorRates.of(host)
    side = "device" if on.pcie_gbps else "host"
    note = (
        f"calls and bytes of the {'CUDA' if on.pcie_gbps else 'CPU'} path here, {on.launch_s * 1e6:g} us a call, "
        f"{f'at least what the host takes at {on.host_s * 1e6:g} us a kernel, ' if rates.host_s else ''}"
        f"{on.memory_efficiency:.0%} of {on.memory_bytes_s / 1e9:.0f} GB/s"
    )
    origin = Origin("nominal", hardware=on.title, note=note)
    found = {}
    words = {
        True: "calls and bytes as the compressor itself says, not counted",
        False: "calls and bytes of its torch operators, counted on a sample, as the compressor has no cost()",
    }
    for name, row in known.items():
        default, copies = row["rank"], 1 if row["additive"] else world_size
        for rank in (default,) if default is None else sorted({default, *RANKS}):
            encode = rates.affine(row[side], rank)
            further_s = row[side]["segment_calls"] / row[side]["calls"] * encode.seconds[0]
            found[name if rank == default else f"{name}(rank={rank})"] = CompressorTimes(
                encode,
                host_rates.affine(row["host"], rank),
                rates.affine(row[side]["decode"], rank, copies),
                replace(origin, note=f"{note}; {words[row['declared']]}") if "declared" in row else origin,
                segment_s=further_s,
                piece_s=further_s,
            )
    return found


def fused_codecs(on: Device, host: Device, world_size: int, host_bound: bool = False) -> dict[str, CompressorTimes]:
    """Return the times of quantisers that one launch encodes on GPU `on`, which counted.json has in plain torch.

    What the kernels do not take (`Coding.fits`) stays as it is counted there; it has the name of a whole segment.
    """
    plain = _times(
        {name: row for name, row in _counted().items() if name in _fused()}, on, host, world_size, host_bound
    )
    whole = {f"{name}(bucket=0)": times for name, times in plain.items()}
    return whole | _times(_fused(), on, host, world_size, host_bound)


@cache
def as_priced(spec: str) -> str:
    """Return a quantiser's spec with the bucket for whose times it is priced: that of what runs, fused or not."""
    asked, coding = Spec.parse(spec, "compressor"), coding_of(build(spec))
    if coding is None or (coding.fits and coding.kind != "means"):
        return spec
    return str(Spec(asked.name, {**asked.options, "bucket": 1024 if coding.fits else 0}))


def fused_version() -> str:
    """Return what stands for the counts of fused kernels in the identity of a case whose times rest on them."""
    return f"fused:{hashlib.sha256(json.dumps(_fused(), sort_keys=True).encode()).hexdigest()[:8]}"


def measured_codecs(nominal: Mapping[str, CompressorTimes]) -> dict[str, CompressorTimes]:
    """Return `nominal` with what was measured on a CPU in place; see the note of costs/cpu.json."""
    table = read(data_dir() / "costs" / "cpu.json", loads)
    decode, origin = Curve.of(table["decode"]), Origin(**table["origin"])
    found = dict(nominal)
    for name, encode in table["encode"].items():
        # Decoding was measured as an indexed addition, which is not how sums of values are decoded.
        found[name] = CompressorTimes(
            Curve.of(encode),
            Curve.of(table["host"][name]),
            nominal[name].decode if _counted()[name]["additive"] else decode,
            origin,
        )
    return found


def published_codecs(paper: str, nominal: Mapping[str, CompressorTimes], world_size: int) -> dict[str, CompressorTimes]:
    """Return `nominal` with what `paper` prints in place: curves, and seconds of a call of any size.

    What is not printed stays nominal; every origin says what is which.
    """
    table = read(data_dir() / "costs" / f"{paper}.json", loads)
    origin = Origin(**table["origin"])
    found = dict(nominal)
    every = table.get("every", {"as": "", "compressors": (), "note": ""})
    curves = dict(table["curves"])
    for name in every["compressors"]:
        curves[name] = table["curves"][every["as"]]
    for name, printed in curves.items():
        alike = name in every["compressors"]
        # What a paper prints for one compressor and is taken for another is not published.
        whose = nominal[name].origin if alike and origin.kind == "published" else origin
        notes = (origin.note, every["note"] if alike else "", table.get("beyond", ""))
        note = "; ".join(filter(None, (*notes, f"decoding is nominal: {nominal[name].origin.note}")))
        found[name] = replace(
            nominal[name],
            encode=Curve.of(printed["encode"]),
            host=Curve.of(printed["host"]),
            host_copies=True,
            origin=replace(whose, note=note),
        )
    calls = {name: one for one in table["calls"] for name in one["compressors"]}
    for spec, codec in nominal.items():
        name = name_of(spec)
        one = None if name in curves else calls.get(name, table.get("other_calls"))
        if one is not None:
            found[spec] = _with_calls(codec, one, origin, 1 if _known()[name]["additive"] else world_size)
    return found


def _with_calls(codec: CompressorTimes, one: Mapping[str, Any], origin: Origin, copies: int) -> CompressorTimes:
    """Return the codec whose calls take the printed seconds, or at least those, decoding once for every message."""
    note = f"{origin.note}: {one['note']}; by element nominal: {codec.origin.note}"

    def starting(curve: Curve, base_s: float) -> Curve:
        own_s = curve.seconds[0]
        more_s = max(0.0, base_s - own_s) if one["least"] else base_s - own_s
        return Curve(curve.sizes, tuple(seconds + more_s for seconds in curve.seconds), curve.unbounded)

    return replace(
        codec,
        encode=starting(codec.encode, one["encode_s"]),
        host=starting(codec.host, one.get("host_s", one["encode_s"])),
        decode=starting(codec.decode, copies * one["decode_s"]) if "decode_s" in one else codec.decode,
        origin=replace(origin, note=note) if one["printed"] else replace(codec.origin, note=note),
    )


def _known() -> dict[str, Any]:
    """Return the counts of compressors here, and in the same form what those of the user's say or do."""
    found = dict(_counted())
    for name in compressors.names():
        if name in found:
            continue
        one = build(name)
        declared = one.cost()
        if cost := declared or _cost_by_operators(type(one)):
            decode = {"calls": cost.decode_calls, "nbytes": cost.decode_nbytes}
            side = {"calls": cost.calls, "segment_calls": cost.segment_calls, "nbytes": cost.nbytes, "decode": decode}
            found[name] = {
                "additive": one.additive,
                "rank": None,
                "device": side,
                "host": side,
                "declared": declared is not None,
            }
    return found


_uncounted: dict[str, str] = {}
"""Compressors of the user's that failed on the sample, and what they said; they have no times."""


def why_uncounted(name: str) -> str:
    """Return in words why the operators of a compressor could not be counted; "" where they were, or need not be."""
    return f"its operators could not be counted on a sample: {why}" if (why := _uncounted.get(name)) else ""


@cache
def _cost_by_operators(kind: type[Compressor]) -> Cost | None:
    """Return what a compressor of the user's does on a sample; None where it fails there, see `why_uncounted`."""
    if kind.__module__.startswith("ssfx."):
        return None  # those are in the table
    from ssfx.compressors.count_cost import counted_cost  # late: it imports torch

    try:
        return counted_cost(build(kind.name))
    except Exception as error:  # code of the user's may raise anything; `why_uncounted` has it
        _uncounted[kind.name] = " ".join(f"{type(error).__name__}: {error}".split())
        return None


@cache
def _counted() -> dict[str, Any]:
    found: dict[str, Any] = read(data_dir() / "costs" / "counted.json", loads)
    return found


@cache
def _fused() -> dict[str, Any]:
    found: dict[str, Any] = read(data_dir() / "costs" / "fused.json", loads)
    return found
