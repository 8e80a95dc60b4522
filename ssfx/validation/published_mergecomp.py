"""MergeComp: scaling factors and speedups on one server of V100s, over PCIe (MPI) and NVLink."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from ssfx.perf_model.target import Target
from ssfx.planning.plan import Plan
from ssfx.validation.published_steps import claims, factor, number, planned, step, target
from ssfx.validation.scores import Pair

MODELS = {
    ("ResNet50", "CIFAR10"): "resnet50_cifar10",
    ("ResNet50", "ImageNet"): "resnet50",
    ("ResNet101", "ImageNet"): "resnet101",
}
NETWORKS = {"PCIe": "mergecomp_pcie", "NVLink": "mergecomp_nvlink"}
COMPRESSORS = {"dgc": "dgc", "efsignsgd": "ef_signsgd", "fp16": "fp16"}
ONE_BIT = ("ef_signsgd", "signsgd", "onebit")
"""SigNUM is SignSGD of a momentum: on the wire and in time it is the same."""


@dataclass(frozen=True)
class Setup:
    """Where a step was timed."""

    model: str
    dataset: str
    gpus: int
    network: str = "PCIe"

    def __str__(self) -> str:
        return f"{self.model} on {self.dataset}, {self.network} x{self.gpus}"

    @property
    def target(self) -> Target:
        """The model on that many GPUs of the server."""
        cluster = f"{NETWORKS[self.network]}(calibration=published,devices_per_node={self.gpus})"
        return target(cluster, MODELS[self.model, self.dataset], number("mergecomp.setup.batch"))


def _sparse(at: Target, scheme: str, compressor: str, **options: object) -> Plan:
    if compressor == "dgc":
        options["density"] = 1 - number("mergecomp.setup.sparsity") / 100
    return planned(at, scheme, compressor=compressor, **options)


METHODS: dict[str, Callable[[Target, str], Plan]] = {
    "fp32": lambda at, _: planned(at, "ddp"),
    "layerwise": lambda at, compressor: _sparse(at, "per_tensor", compressor, grouping="none"),
    "Y=1": lambda at, compressor: _sparse(at, "fused_all", compressor),
    "Y=2": lambda at, compressor: _sparse(at, "mergecomp", compressor),
    "Y=3": lambda at, compressor: _sparse(at, "mergecomp", compressor, max_groups=3),
    "even split": lambda at, compressor: _sparse(at, "mergecomp", compressor, cuts=len(at.profile.tensors) // 2),
}
"""The baseline with PyTorch's buckets, every tensor on its own, and MergeComp with as many groups."""


@cache
def time_s(method: str, compressor: str, setup: Setup) -> float:
    """Return the iteration time of a method."""
    at = setup.target
    return step(at, METHODS[method](at, compressor)).iteration_s


def ratios() -> Iterator[Pair]:
    """Yield ratios of iteration times: scaling factors of one method over another's, and Tables 2 and 3."""
    yield from _gains()
    yield from _tables()


def scaling_factors() -> Iterator[Pair]:
    """Yield scaling factors: a device's speed among others over its speed alone.

    Of ResNet101 on NVLink the paper does not name the compressor; only FP16 could use NVLink there.
    """
    for name, method, compressor in (
        ("fig4.nv.fp32", "fp32", ""), ("fig4.nv.fp16", "Y=2", "fp16"), ("fig5.nv.4", "Y=2", "fp16"),
        ("fig5.nv.8", "Y=2", "fp16"), ("fig8.sf", "Y=2", "ef_signsgd"),
    ):  # fmt: skip
        claim_id = f"mergecomp.{name}"
        at = _setup(claim_id)
        found = at.target.profile.alone_s() / time_s(method, compressor, at)
        label = f"MergeComp {compressor}" if compressor else method
        yield Pair(f"scaling factor, {at}", label, found, number(claim_id), claim=claim_id)


def _gains() -> Iterator[Pair]:
    for figure in ("fig4", "fig5"):
        for slower, key in (("fp32", "base"), ("layerwise", "layer")):
            claim_id = f"mergecomp.{figure}.dgc.{key}"
            at = _setup(claim_id)
            yield _pair(at, f"dgc over {slower}", claim_id, _gain(at, slower, "dgc"))
            best = max(_gain(at, slower, compressor) for compressor in ONE_BIT)
            yield _pair(at, f"one bit over {slower}", f"mergecomp.{figure}.onebit.{key}", best)
    for figure, compressor in (("fig7", "dgc"), ("fig8", "ef_signsgd")):
        for slower, key in (("fp32", "base"), ("layerwise", "layer")):
            claim_id = f"mergecomp.{figure}.{key}"
            at = _setup(claim_id)
            yield _pair(at, f"{compressor} over {slower}", claim_id, _gain(at, slower, compressor))


def _tables() -> Iterator[Pair]:
    for claim in claims().values():
        if claim.artifact not in ("mergecomp.table2", "mergecomp.table3") or "gpus" not in claim.conditions:
            continue
        table = claim.artifact[-1]
        name = claim.subject.removeprefix("mergecomp-").partition("(")[0]
        at = Setup("ResNet101", "ImageNet", claim.conditions["gpus"])
        slower = "Y=1" if table == "2" else "even split"
        gain = _gain(at, slower, COMPRESSORS[name], f"Y={claim.conditions['Y']}")
        label = f"{name} Y={claim.conditions['Y']}"
        yield Pair(f"Table {table} x{at.gpus}", label, gain, factor(claim.id), claim=claim.id)


def _gain(at: Setup, slower: str, compressor: str, faster: str = "Y=2") -> float:
    return time_s(slower, compressor, at) / time_s(faster, compressor, at)


def _setup(claim_id: str) -> Setup:
    said = claims()[claim_id].conditions
    return Setup(said["model"], said["dataset"], said["gpus"], said["network"])


def _pair(at: Setup, label: str, claim_id: str, predicted: float) -> Pair:
    return Pair(f"gain, {at}", label, predicted, factor(claim_id), claim=claim_id)
