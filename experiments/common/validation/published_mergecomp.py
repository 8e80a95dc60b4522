"""MergeComp: scaling factors and speedups on one server of V100s, over PCIe (MPI) and NVLink."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from experiments.common.claims.ledger import claims_by_id
from experiments.common.validation.published_steps import (
    PaperMethod,
    PaperSetting,
    Prediction,
    Timed,
    Value,
    largest,
    method,
    number,
    over,
)
from ssfx.core.spec import name_of
from ssfx.perf_model.operator_counts import model_work

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
    def setting(self) -> PaperSetting:
        """The model on that many GPUs of the server."""
        model = MODELS[self.model, self.dataset]
        batch_size = int(number("mergecomp.setup.batch"))
        return PaperSetting(NETWORKS[self.network], model, batch_size, (("devices_per_node", self.gpus),))


def _sparse(scheme: str, compressor: str, **options: object) -> PaperMethod:
    if compressor == "dgc":
        options["density"] = 1 - number("mergecomp.setup.sparsity") / 100
    return method(scheme, compressor=compressor, **options)


METHODS: dict[str, Callable[[str, int], PaperMethod]] = {
    "fp32": lambda *_: method("ddp"),
    "layerwise": lambda compressor, _: _sparse("per_tensor", compressor, grouping="none"),
    "Y=1": lambda compressor, _: _sparse("fused_all", compressor),
    "Y=2": lambda compressor, _: _sparse("mergecomp", compressor),
    "Y=3": lambda compressor, _: _sparse("mergecomp", compressor, max_groups=3),
    "Y=4": lambda compressor, _: _sparse("mergecomp", compressor, max_groups=4),
    "even split": lambda compressor, tensors: _sparse("mergecomp", compressor, cuts=tensors // 2),
}
"""The baseline with PyTorch's buckets, every tensor on its own, and MergeComp with as many groups.

By compressor and number of tensors of the model.
"""


def timed(name: str, compressor: str, setup: Setup) -> Timed:
    """Return a method of the paper in one of its set-ups."""
    tensors = len(model_work(setup.setting.model).tensors)
    return METHODS[name](compressor, tensors), setup.setting


def ratios() -> Iterator[Prediction]:
    """Yield ratios of iteration times: scaling factors of one method over another's, and Tables 2 and 3."""
    for figure, compressor in (("fig4.dgc", "dgc"), ("fig5.dgc", "dgc"), ("fig7", "dgc"), ("fig8", "ef_signsgd")):
        for slower, key in (("fp32", "base"), ("layerwise", "layer")):
            claim_id = f"mergecomp.{figure}.{key}"
            at = setup_of(claim_id)
            yield Prediction(claim_id, f"gain, {at}", f"{compressor} over {slower}", _gain(at, slower, compressor))
            if figure in ("fig4.dgc", "fig5.dgc"):
                best = largest(_gain(at, slower, other) for other in ONE_BIT)
                yield Prediction(claim_id.replace("dgc", "onebit"), f"gain, {at}", f"one bit over {slower}", best)
    for claim in claims_by_id().values():
        if claim.artifact not in ("mergecomp.table2", "mergecomp.table3") or "gpus" not in claim.conditions:
            continue
        table = claim.artifact[-1]
        name = name_of(claim.subject.removeprefix("mergecomp-"))
        at = Setup("ResNet101", "ImageNet", claim.conditions["gpus"])
        slower = "Y=1" if table == "2" else "even split"
        gain = _gain(at, slower, COMPRESSORS[name], f"Y={claim.conditions['Y']}")
        label = f"{name} Y={claim.conditions['Y']}"
        yield Prediction(claim.id, f"Table {table} x{at.gpus}", label, gain)


def scaling_factors() -> Iterator[Prediction]:
    """Yield scaling factors: a device's speed among others over its speed alone.

    Of ResNet101 on NVLink the paper does not name the compressor; only FP16 could use NVLink there.
    """
    for name, way, compressor in (
        ("fig4.nv.fp32", "fp32", ""),
        ("fig4.nv.fp16", "Y=2", "fp16"),
        ("fig5.nv.4", "Y=2", "fp16"),
        ("fig5.nv.8", "Y=2", "fp16"),
        ("fig8.sf", "Y=2", "ef_signsgd"),
    ):
        claim_id = f"mergecomp.{name}"
        at = setup_of(claim_id)
        label = f"MergeComp {compressor}" if compressor else way
        value = scaling_factor(timed(way, compressor, at))
        yield Prediction(claim_id, f"scaling factor, {at}", label, value, number)


def scaling_factor(where: Timed) -> Value:
    """Return T_n / (n T_1): one device's time alone over the time of an iteration."""
    return lambda steps: steps.alone_s(where[1]) / steps.step(*where).iteration_s


def _gain(at: Setup, slower: str, compressor: str, faster: str = "Y=2") -> Value:
    return over(timed(slower, compressor, at), timed(faster, compressor, at))


def setup_of(claim_id: str) -> Setup:
    """Return the setting that a claim's conditions name."""
    said = claims_by_id()[claim_id].conditions
    return Setup(said["model"], said["dataset"], said["gpus"], said["network"])
