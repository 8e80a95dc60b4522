"""The TimingModel of a cluster: recorded on this machine, or made from line rates, data sheets and what papers print.

Every assumption is in docs/cluster_times.md, with its reason.
"""

from dataclasses import replace

from ssfx.core.errors import ConfigError
from ssfx.core.origin import Kind, Origin
from ssfx.perf_model.cluster import MEASURABLE, Cluster
from ssfx.perf_model.compressor_times import (
    CompressorRates,
    fused_codecs,
    measured_codecs,
    nominal_codecs,
    published_codecs,
)
from ssfx.perf_model.devices import Device, device, device_names, has_sheet
from ssfx.perf_model.gpu_record import GpuRecord, gpu_record
from ssfx.perf_model.recorded_times import recorded_system
from ssfx.perf_model.timing_model import Contention, TimingModel
from ssfx.planning.costs import CompressorTimes, Curve, Overheads

GPU_OCCUPANCY = 0.05
"""NCCL runs a thread block per channel on a compute unit of its own: about 4 channels of 68 to 132 units."""
CORE_GBPS = 20.0
"""What one core moves through TCP if it does nothing else; a rank on a CPU trains and communicates on one core."""
PCIE_EFFICIENCY = 0.8
"""Pinned copies reach about 25 of the 31.5 GB/s of PCIe Gen4 x16."""
PYTHON_S = 1e-5
"""A short Python function on the training thread: a hook, or the call that issues an exchange."""
CASTS = ("fp16", "bf16")
"""Compressors that only change the type of values: one kernel, unlike a sparsifier's call."""
PRINTED = ("published", "fitted")
"""Calibrations of the authors' codes, which call a compressor for every tensor."""
WAIT_S = 2e-5
"""Waiting for a value of the device."""


def system_on(cluster: Cluster, fused: bool = True) -> TimingModel:
    """Return what is known about time on `cluster`, by its calibration; every origin says from where.

    `fused`: whether GPUs quantise by the kernels that are here, and not in plain torch as rows from before them.

    A cluster of CPUs on this machine has the times that were recorded on it; where there are none, nominal ones. GPUs
    here have what `ssfx doctor --gpu` measured, or nominal times once they are named; else ConfigError.
    """
    if cluster.device == "cuda" and cluster.calibration == "recorded" and (record := gpu_record()) and record.sheet:
        return _on_recorded_gpus(cluster, record, fused)
    if not has_sheet(cluster.device):
        raise ConfigError(
            f"nothing is known about time on the {cluster.device} devices of cluster={cluster.name}, as they were not "
            f"measured: run ssfx doctor --gpu, say what they are with cluster.device={'|'.join(device_names())}, "
            "or use device=cpu"
        )
    here = cluster.calibration == "recorded" and cluster.device == "cpu"
    if here and (found := recorded_system(cluster.name, cluster.world_size)):
        return found
    on = device(cluster.device).issued_in(cluster.host_s)
    codecs = nominal_codecs(on, device("cpu"), cluster.world_size, cluster.host_bound)
    if cluster.calibration in PRINTED and cluster.codec_times:
        codecs = published_codecs(cluster.codec_times, codecs, cluster.world_size)
    elif not on.pcie_gbps:
        codecs = measured_codecs(codecs)
    elif fused and cluster.calibration not in PRINTED:
        codecs = codecs | fused_codecs(on, device("cpu"), cluster.world_size, cluster.host_bound)
    if cluster.compressor_call_ms is not None:
        call_s = 1e-3 * cluster.compressor_call_ms
        codecs = {name: codec if name in CASTS else _with_call(codec, call_s) for name, codec in codecs.items()}
    exchange = cluster.exchange()
    return TimingModel(
        name=cluster.name,
        world_size=cluster.world_size,
        codecs=codecs,
        exchange=exchange,
        origin=_origin(cluster, on),
        contention=Contention(dict.fromkeys(exchange, _occupancy(cluster, on))),
        overheads=_overheads(on),
        style="per_call" if cluster.calibration in PRINTED else "batched",
        host_shares=not on.pcie_gbps,
        pcie_s_per_byte=8e-9 / (on.pcie_gbps * PCIE_EFFICIENCY) if on.pcie_gbps else 0.0,
    )


def _on_recorded_gpus(cluster: Cluster, record: GpuRecord, fused: bool) -> TimingModel:
    """Return the times of this machine's GPUs: nominal ones of their data sheet, and measured ones in place of them.

    The origin is measured where compressors are, and exchanges too if there are any.
    """
    host_us = record.host_us if cluster.host_us is None else cluster.host_us
    named = replace(cluster, device=record.sheet, tables=record.exchanges, calibration="nominal", host_us=host_us)
    nominal = system_on(named, fused)
    exchanged = cluster.world_size == 1 or bool(named.tabled.measured)
    text = "" if cluster.world_size == 1 else f"; exchanges: {named.exchange_text}"
    note = f"{record.origin.note}{text}; overheads by data sheet ({record.sheet})"
    kind: Kind = "measured" if exchanged and record.codecs else "nominal"
    return replace(
        nominal,
        name=cluster.name,
        codecs={**nominal.codecs, **record.codecs},
        origin=replace(record.origin, kind=kind, note=note),
    )


def _with_call(codec: CompressorTimes, call_s: float) -> CompressorTimes:
    """Return the times with a call on a small tensor that takes `call_s`; a further segment takes its share of it."""
    own_s = codec.encode.seconds[0]
    share = call_s / own_s if own_s else 1.0
    encode = Curve(codec.encode.sizes, tuple(s - own_s + call_s for s in codec.encode.seconds), codec.encode.unbounded)
    further = {name: share * getattr(codec, name) for name in ("segment_s", "piece_s", "tensor_s")}
    return replace(codec, encode=encode, **further)


def _origin(cluster: Cluster, on: Device) -> Origin:
    link = cluster.bottleneck
    factors = ", ".join(f"{name} x{factor:g}" for name, factor in sorted(cluster.factors.items()))
    note = (
        f"{cluster.exchange_text}, {cluster.bottleneck_text} at {link.efficiency:.3g}, "
        f"{link.latency_s * 1e6:g} us a step"
        f"{f', by byte {factors}' if factors else ''}{_summed_by_switch(cluster)} ({cluster.source})"
    )
    note += f", {cluster.message_us:g} us to issue a message" if cluster.message_us else ""
    note += f", {1e6 * on.host_s:g} us of the host a kernel" if cluster.host_us is not None else ""
    replacing = [
        name for name in MEASURABLE if name not in ("message_us", "host_us") and getattr(cluster, name) is not None
    ]
    given = [f"{name}={getattr(cluster, name):g}" for name in replacing]
    note += f"; given, in place of what follows from the rest: {', '.join(given)}" if given else ""
    kind = cluster.calibration if cluster.calibration in PRINTED else "nominal"
    return Origin(kind, hardware=f"{cluster.world_size} x {on.title}", note=note)  # type: ignore[arg-type]


def _summed_by_switch(cluster: Cluster) -> str:
    share = cluster.intra.switch_efficiency
    if not share or cluster.devices_per_node == 1 or cluster.busbw_gbps is not None:
        return ""
    return f", all-reduces inside a node summed by the switch at {share:g} of {cluster.intra.gbps:g} Gbit/s"


def _occupancy(cluster: Cluster, on: Device) -> float:
    """Return the share of a rank's computing power that an exchange takes."""
    if on.pcie_gbps:
        return GPU_OCCUPANCY
    return min(1.0, cluster.bottleneck.gbps * cluster.bottleneck.efficiency / CORE_GBPS)


def _overheads(on: Device) -> Overheads:
    """Return what the runtime takes besides compression: passes over the gradient, and Python where it is not hidden.

    A dense gradient is copied into its message (read, write); what arrives is looked at once and copied out. On a GPU
    the training thread runs ahead of the device, so a hook costs nothing there and a message two launches.
    """
    rates = CompressorRates.of(on)
    gpu = bool(on.pcie_gbps)
    return Overheads(
        hook_s=0.0 if gpu else PYTHON_S,
        fill_s_per_byte=2 / rates.bytes_s,
        lane_s=2 * rates.call_s if gpu else PYTHON_S,
        result_s_per_byte=3 / rates.bytes_s,
        finish_s=WAIT_S if gpu else PYTHON_S,
    )
