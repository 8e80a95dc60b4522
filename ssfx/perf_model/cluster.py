"""The Cluster: how many devices of which kind, joined by which links, and where those numbers come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isfinite
from typing import Literal

from ssfx.core.errors import ConfigError
from ssfx.core.plausible import plausible
from ssfx.perf_model.exchange_tables import ExchangeTable, Tabled, tabled
from ssfx.perf_model.links import link_kind
from ssfx.planning.costs import Curve

Calibration = Literal["nominal", "published", "fitted", "recorded"]


MOST_RANKS = 10**6
"""More ranks than these are a slip, and would take minutes and gigabytes to simulate."""

_TREE_RATE = 0.92 * 15 / 16
"""Share of a ring's rate that NCCL counts on for trees, in messages with flags of 8 in 128 bytes."""
TREE_SHARES = tuple(
    (2**power, _TREE_RATE * share)
    for power, share in (
        (10, 1.0),
        (11, 0.9),
        (12, 0.8),
        (14, 0.8),
        (15, 0.7),
        (16, 0.6),
        (21, 0.6),
        (22, 0.8),
        (23, 0.9),
        (26, 0.9),
        (27, 1.0),
    )
)
"""Bytes, and the share of the line that a pipelined tree reaches at them. Source: the model by which NCCL chooses
(src/graph/tuning.cc of NVIDIA/nccl at 5067397c, protocol LL128)."""

MEASURABLE = ("busbw_gbps", "small_allreduce_us", "compressor_call_ms", "message_us", "host_us")
"""Numbers of a cluster that a user may measure and give."""


@dataclass(frozen=True)
class Link:
    """One kind of connection.

    gbps: line rate. efficiency: share of it that collectives reach. latency_s: of one message. kind: its name in
    `links.json`, "" if it is described by numbers alone. rdma: the card reads and writes the device's memory or pinned
    memory by itself; False where messages go through sockets. switch_efficiency: share of the line rate that an
    all-reduce reaches where the switch sums; 0 where the devices do.
    """

    gbps: float
    efficiency: float
    latency_s: float
    kind: str = ""
    rdma: bool = False
    switch_efficiency: float = 0.0
    like: str = ""
    """The kind that the other numbers are of, where the rate is another one."""

    @classmethod
    def of_kind(cls, kind: str, on: str = "", **changes: float) -> Link:
        """Return the link of a kind, "pcie" and "nvlink" as device `on` has them; `changes` has other numbers."""
        found = link_kind(kind, on)
        found.pop("source")
        if changes.get("gbps", found["gbps"]) != found["gbps"]:
            found.update(like=found["kind"], kind="")
        return cls(**{**found, **changes})

    def __post_init__(self) -> None:
        # Not a number compares false with everything, so each is asked for what it must be.
        if not (self.gbps > 0 and isfinite(self.gbps) and self.latency_s >= 0 and isfinite(self.latency_s)):
            raise ConfigError(f"gbps and latency_s must be positive numbers, got {self.gbps} and {self.latency_s}")
        if not 0 < self.efficiency <= 1:
            percent = f"; {self.efficiency:g} % is {self.efficiency / 100:g}" if 2 <= self.efficiency <= 100 else ""
            raise ConfigError(f"efficiency must be in (0, 1], a share of gbps, got {self.efficiency:g}{percent}")
        if not 0 <= self.switch_efficiency <= 1:
            raise ConfigError(f"switch_efficiency must be in [0, 1], got {self.switch_efficiency}")

    @property
    def beta_s_per_byte(self) -> float:
        """Seconds per byte in one direction at the effective rate."""
        return 8e-9 / (self.gbps * self.efficiency)

    def all_reduce_s_per_byte(self, devices: int) -> float:
        """Seconds per byte of an all-reduce over `devices` of one node: round a ring, or summed by the switch.

        The switch reads each byte once from every device and writes the sum once to each: with its share of both, a
        device passes 1 + 1 / devices of its bytes in one direction.
        """
        ring = 2 * (devices - 1) / devices * self.beta_s_per_byte
        if not self.switch_efficiency:
            return ring
        return min(ring, (1 + 1 / devices) * 8e-9 / (self.gbps * self.switch_efficiency))


@dataclass(frozen=True)
class Cluster:
    """Machines with equal devices, and the links inside and between them.

    busbw_gbps, small_allreduce_us and compressor_call_ms, which anybody can measure, replace what follows from the
    rest; None: they do not.
    """

    name: str
    """As the file in conf/cluster is called."""
    summary: str
    """One line for `ssfx list clusters`."""
    nodes: int
    """Number of machines."""
    devices_per_node: int
    """Devices, and so ranks, in each machine."""
    device: str
    """A name in ssfx/data/devices.json (cpu, a100, ...); "auto": what is found when the run starts."""
    intra: Link
    """Between two devices of one machine."""
    inter: Link
    """One network card."""
    source: str
    """Where the numbers come from."""
    nics_per_node: int = 1
    """Network cards of a machine, which its devices share."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """By primitive, what the seconds per byte of the ring formulas are multiplied by."""
    calibration: Calibration = "nominal"
    """Whether links and factors are line rates with a stated efficiency, fitted to a paper, or recorded here."""
    codec_times: str = ""
    """The paper whose printed times of compressors count; "" for none."""
    busbw_gbps: float | None = None
    """Bus bandwidth of a large all-reduce over all devices in Gbit/s: 8 times what nccl-tests prints."""
    small_allreduce_us: float | None = None
    """Microseconds of an all-reduce of a few bytes."""
    compressor_call_ms: float | None = None
    """Milliseconds of one call of any compressor on a small tensor; casts to 16 bits are not meant."""
    message_us: float | None = None
    """Microseconds that the library takes to issue a message before it travels, on top of what links take; None: none.
    A table and a small all-reduce hold it already."""
    host_us: float | None = None
    """Microseconds in which a device's host issues one kernel of a training step; 0 where a captured CUDA graph or
    compiled code does. None: as the device's sheet says."""
    host_bound: bool = False
    """Whether the host holds the steps that run here (`Profile.host_bound`): then a compressor's call takes the host's
    time where that is longer, which a host that runs ahead hides."""
    tables: tuple[ExchangeTable, ...] = ()
    """Measured exchanges; those of as many ranks, so placed, stand in place of the formulas."""

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.devices_per_node < 1 or self.nics_per_node < 1:
            raise ConfigError(f"cluster {self.name!r} needs at least one node with one device and one network card")
        plausible("nics_per_node", self.nics_per_node, "cluster.nics_per_node")
        if self.world_size > MOST_RANKS:
            raise ConfigError(
                f"cluster={self.name} would have {self.world_size:,} ranks; at most {MOST_RANKS:,} can be simulated"
            )
        if any(not factor > 0 for factor in self.factors.values()):
            raise ConfigError(f"cluster {self.name!r}: factors of primitives must be positive")
        for name in MEASURABLE:
            value = getattr(self, name)
            if value is not None:
                plausible(name, value, f"cluster.{name}")
        if self.host_us is not None and self.device == "cpu":
            raise ConfigError("cluster.host_us has no effect, as CPUs are their own hosts; drop it, or name a GPU")

    @property
    def world_size(self) -> int:
        """Number of ranks, one per device."""
        return self.nodes * self.devices_per_node

    @property
    def host_s(self) -> float | None:
        """The same in seconds."""
        return None if self.host_us is None else 1e-6 * self.host_us

    @property
    def bottleneck(self) -> Link:
        """The link that limits a ring over all devices: one inside a node, or a network card."""
        return self.intra if self.slowest_inside else self.inter

    @property
    def slowest_inside(self) -> bool:
        """Whether bytes on their way round all devices are slowest inside a node, not through its cards together."""
        if self.nodes == 1 or self.devices_per_node == 1:
            return self.nodes == 1
        return self.intra.beta_s_per_byte > self.inter.beta_s_per_byte / self.nics_per_node

    @property
    def bottleneck_text(self) -> str:
        """The line rate of the bottleneck in words, which say so where it is not the network."""
        return f"{self.bottleneck.gbps:g} Gbit/s{' inside a node' if self.nodes > 1 and self.slowest_inside else ''}"

    @property
    def network_text(self) -> str:
        """The line rate that ranks exchange at, in words: between nodes, with the number of cards, if there are any."""
        if self.busbw_gbps is not None:
            return f"{self.busbw_gbps:g} Gbit/s of measured bus bandwidth"
        if self.nodes == 1:
            return f"{self.intra.gbps:g} Gbit/s"
        cards = f"{self.nics_per_node} x " if self.nics_per_node > 1 else ""
        inside = f" between nodes (slower inside: {self.intra.gbps:g})" if self.slowest_inside else ""
        return f"{cards}{self.inter.gbps:g} Gbit/s{inside}"

    @property
    def trees(self) -> bool:
        """Whether an all-reduce may go along a tree: between nodes of GPUs, where NCCL chooses by size."""
        return self.nodes > 1 and self.device != "cpu"

    def exchange(self) -> dict[str, Curve]:
        """Return curves of the primitives over the bytes that one rank contributes: of tables where there are any."""
        formulas = self.formulas()
        return {**formulas, **self._tabled(formulas).curves} if self.tables else formulas

    def formulas(self) -> dict[str, Curve]:
        """Return the curves that follow from links, ignoring tables; see `hierarchy_exchange`.

        With a measured bus bandwidth the links are as fast as gives it, with a measured small all-reduce as prompt.
        """
        cluster = self
        if self.busbw_gbps is not None:
            rate = self.busbw_gbps
            inside = max(rate, self.intra.gbps * self.intra.efficiency)
            near = rate if self.nodes == 1 else inside
            intra = replace(self.intra, gbps=near, efficiency=1.0, switch_efficiency=0.0)
            inter = replace(self.inter, gbps=rate / self.nics_per_node, efficiency=1.0)
            cluster = replace(cluster, intra=intra, inter=inter, busbw_gbps=None)
        if self.small_allreduce_us is not None and self.world_size > 1:
            least_s = hierarchy_exchange(cluster)["all_reduce"].seconds[0]
            factor = 1e-6 * self.small_allreduce_us / least_s if least_s else 1.0
            intra, inter = (replace(link, latency_s=factor * link.latency_s) for link in (cluster.intra, cluster.inter))
            cluster = replace(cluster, intra=intra, inter=inter, message_us=None)
        curves = hierarchy_exchange(cluster)
        issued_s = 1e-6 * (cluster.message_us or 0.0) if self.world_size > 1 else 0.0
        return {name: curve.later(issued_s) for name, curve in curves.items()} if issued_s else curves

    @property
    def tabled(self) -> Tabled:
        """What the tables say of all ranks of this cluster."""
        return self._tabled(self.formulas())

    def _tabled(self, formulas: Mapping[str, Curve]) -> Tabled:
        return tabled(self.tables, self.world_size, self.devices_per_node, formulas)

    @property
    def exchange_text(self) -> str:
        """In words, which exchange times were measured, which follow from one, and which are formulas."""
        formulas = "ring and tree formulas" if self.trees else "ring formulas"
        here = self.tabled
        if not here.curves:
            if not self.tables:
                return formulas
            have = ", ".join(sorted({f"{one.ranks} in nodes of {one.ranks_per_node}" for one in self.tables}))
            return f"{formulas}, as no table is of {self.world_size} ranks in nodes of {self.devices_per_node} ({have})"
        parts = [f"{name} measured ({table.text})" for name, table in here.measured.items()]
        for rule in dict.fromkeys(here.derived.values()):
            parts.append(f"{', '.join(name for name, one in here.derived.items() if one == rule)} {rule}")
        rest = f"; all others {formulas}" if set(self.formulas()) - set(here.curves) else ""
        return f"{'; '.join(parts)}{rest}"


def hierarchy_exchange(cluster: Cluster) -> dict[str, Curve]:
    """Return alpha-beta curves of the primitives on nodes that share their network cards.

    Rings run through all devices, node after node, and are as slow as their slowest link; every card carries one
    direction of the ring, several cards share it. Messages to arbitrary peers leave through the node's cards, all
    devices at once. Primitives that end in _inside stay in a node. Where the switch of a node sums, an all-reduce in it
    may be as fast as that. Between nodes of GPUs an all-reduce may go up and down a tree, whichever is faster, as NCCL
    chooses by size. Source: SSFusion Eq. 3-4 and D-43 for rings on one kind of link, which this equals with one device
    per node; D-27 for trees, and for those on two nodes what NCCL's authors say (NVIDIA/nccl-tests#196).
    """
    p, g, nodes = cluster.world_size, cluster.devices_per_node, cluster.nodes
    near_s, near_beta = cluster.intra.latency_s, cluster.intra.beta_s_per_byte
    far_s, far_beta = cluster.inter.latency_s, cluster.inter.beta_s_per_byte / cluster.nics_per_node
    if nodes == 1:
        far_s, far_beta = near_s, near_beta
        shared_beta = near_beta
    else:
        shared_beta = g * far_beta
    near_sum_beta = cluster.intra.all_reduce_s_per_byte(g)
    if g == 1:
        near_s, near_beta, near_sum_beta = 0.0, 0.0, 0.0
    # A chunk on its way round passes every link once: latencies add up, while the slowest link limits the rate.
    alpha_s, beta = (nodes * far_s + (p - nodes) * near_s) / p, max(near_beta, far_beta)
    share = (p - 1) / p
    away = (p - g) / p if nodes > 1 else share
    inside, across = (g - 1).bit_length(), (nodes - 1).bit_length()  # rounds of a binomial tree, not pipelined
    terms = {
        "all_reduce": (2 * (p - 1) * alpha_s, near_sum_beta if nodes == 1 else 2 * share * beta),
        "all_gather": ((p - 1) * alpha_s, (p - 1) * beta),
        # Variable sizes: the 8-byte lengths are gathered first.
        "all_gather_v": ((p - 1) * (2 * alpha_s + 8 * beta), (p - 1) * beta),
        # The same bytes in two halves, as codes do that send indices and values apart.
        "all_gather_twice": (2 * (p - 1) * alpha_s, (p - 1) * beta),
        "reduce_scatter": ((p - 1) * alpha_s, share * beta),
        "all_to_all": ((p - 1) * alpha_s, max(away * shared_beta, (g - 1) / p * near_beta)),
        "broadcast": (inside * near_s + across * far_s, inside * near_beta + across * far_beta),
        "send": (alpha_s, max(shared_beta, near_beta)),
        "send_inside": (near_s or far_s, near_beta or far_beta),
    }
    if nodes == 1:
        terms["broadcast"] = (inside * near_s, inside * near_beta)
    curves = {
        name: Curve.affine(base_s, cluster.factors.get(name, 1.0) * per_byte)
        for name, (base_s, per_byte) in terms.items()
    }
    if cluster.trees:
        # A chain inside each node, a pipelined double tree between them. A card passes the bytes twice, up and down, on
        # two nodes once. Over sockets NCCL keeps to what a ring's bytes cost: the processors are busy, not the line.
        tree_s = 2 * ((g - 1) * near_s + across * far_s)
        factor = cluster.factors.get("all_reduce", 1.0)
        if cluster.inter.rdma:
            passes = 1 if nodes == 2 else 2
            tree = _tree(tree_s, factor * max(passes * far_beta, near_sum_beta))
        else:
            tree = Curve.affine(tree_s, factor * 2 * beta)
        curves["all_reduce"] = _lesser(curves["all_reduce"], tree)
    return curves


def _tree(base_s: float, per_byte: float) -> Curve:
    """Return the seconds of an all-reduce along a tree whose rate is what NCCL counts on at each size."""
    sizes = (0.0, *(float(size) for size, _ in TREE_SHARES), TREE_SHARES[-1][0] + 2.0**30)
    shares = (1.0, *(share for _, share in TREE_SHARES), TREE_SHARES[-1][1])
    return Curve(
        sizes,
        tuple(base_s + per_byte * size / share for size, share in zip(sizes, shares, strict=True)),
        unbounded=True,
    )


def _lesser(one: Curve, two: Curve) -> Curve:
    """Return the lesser of two curves at every size, between and beyond their knots too."""

    def apart(size: float) -> float:
        return _start(one, size) - _start(two, size)

    last = 2.0**60
    ends = sorted({*one.sizes, *two.sizes})
    sizes = {*ends, ends[-1] + 2.0**30}
    for low, high in pairwise([*ends, last]):
        before, after = apart(low), apart(high)
        if before * after < 0:
            meet = low + (high - low) * before / (before - after)
            sizes |= {meet, meet + 2.0**30} if high == last else {meet}
    found = tuple(sorted(sizes))
    return Curve(found, tuple(min(_start(one, size), _start(two, size)) for size in found), unbounded=True)


def _start(curve: Curve, size: float) -> float:
    """Return the seconds of a size; for 0, which costs nothing, those from which the curve begins."""
    return curve(size) if size else curve.seconds[0]
