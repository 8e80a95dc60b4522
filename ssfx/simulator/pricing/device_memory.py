"""Device memory that data-parallel training of a model takes, or a plan of it, use by use: what fits, what would."""

from dataclasses import asdict, dataclass
from functools import cache
from math import ceil
from typing import Any

from ssfx.collectives import Reducer, collectives
from ssfx.compressors import build
from ssfx.core.errors import ConfigError, unknown
from ssfx.core.numbers import rounded
from ssfx.perf_model.devices import SIXTEEN_BIT, device, has_sheet
from ssfx.perf_model.operator_counts import is_counted, model_work
from ssfx.perf_model.saved_profiles import given_time
from ssfx.planning.plan import ITEM_BYTES, Plan
from ssfx.planning.profile import Profile
from ssfx.planning.sharding import ShardedPlan
from ssfx.simulator.pricing.message_sizes import lane_bytes
from ssfx.simulator.pricing.sharded_step import handed_over, is_native, ranks_per_node, summed_inside

OPTIMIZER_STATE = {"sgd": 1, "adam": 2, "adamw": 2, "muon": 1}
"""Copies of the parameters that an optimizer keeps; sgd has momentum, and so has muon (two moments of vectors)."""


@dataclass(frozen=True)
class Footprint:
    """Bytes of device memory that one rank takes, by use.

    `parameters` are float32, with the 16-bit copies that autocast keeps of them in bf16 and fp16. `activations` is what
    autograd keeps for backward. Left out: workspaces of libraries, the driver's context, fragmentation, and messages in
    flight.
    """

    parameters: int
    gradients: int
    optimizer_state: int
    activations: int
    residual: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.parameters + self.gradients + self.optimizer_state + self.activations + self.residual


def memory_bytes(
    model: str,
    batch_size: int | None = None,
    optimizer: str | None = None,
    *,
    residual_copies: int = 0,
    fused_attention: bool = False,
    precision: str = "fp32",
) -> Footprint:
    """Return what a rank of `model` keeps in device memory; None takes the customary batch size and optimizer.

    `residual_copies` is the number of tensors the size of the gradient that error feedback keeps: 0 for dense training
    and without memory, 1 for a residual, 2 with momentum correction. `fused_attention` keeps no matrices of scores.
    In bf16 and fp16 activations take half; of layers that are customarily computed again only inputs are kept. The
    world size changes none of it. ConfigError for an unknown model or optimizer, or a batch size below 1.
    """
    work = model_work(model)
    samples = work.batch_size if batch_size is None else batch_size
    chosen = work.optimizer if optimizer is None else optimizer
    if samples < 1:
        raise ConfigError(f"batch_size must be at least 1, got {samples}")
    if chosen not in OPTIMIZER_STATE:
        raise unknown("optimizer", chosen, OPTIMIZER_STATE)
    weights = 4 * work.numel
    per_sample = work.kept_bytes(fused_attention=fused_attention)
    half = precision in SIXTEEN_BIT
    return Footprint(
        parameters=weights + (weights // 2 if half else 0),
        gradients=weights,
        optimizer_state=OPTIMIZER_STATE[chosen] * weights,
        activations=per_sample * samples // (2 if half else 1),
        residual=residual_copies * weights,
    )


GB = 2**30
"""A GB as devices are sold with."""
MEMORY_SIDES = 2
"""Residuals of a step, committed and under way."""
MOST_SHARDS = 4096


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes by use on one rank, beside those of its device.

    weights: with their 16-bit copies. residuals: what compressors keep, committed and of the step under way. messages:
    those handed over and what is received. sample: activations of one sample, None where nothing tells of them. Left
    out: workspaces of libraries, the driver's context, fragmentation.
    """

    weights: int
    gradients: int
    optimizer_state: int
    residuals: int
    messages: int
    sample: int | None
    batch_size: int
    device_bytes: int
    sharded: bool = False
    """Whether the state is shared among ranks already."""

    @property
    def fixed(self) -> int:
        """What the batch size leaves alone."""
        return self.weights + self.gradients + self.optimizer_state + self.residuals + self.messages

    @property
    def total(self) -> int:
        """All that is known."""
        return self.fixed + (self.sample or 0) * self.batch_size

    @property
    def fits(self) -> bool:
        """Whether the device has as much."""
        return self.total <= self.device_bytes

    @property
    def largest_batch(self) -> int:
        """Samples for which it fits; 0 where nothing fits, or nothing tells what a sample takes."""
        return max(0, (self.device_bytes - self.fixed) // self.sample) if self.sample else 0

    @property
    def shards(self) -> int:
        """Devices that weights, gradients and optimizer state are shared over for one sample to fit; 0: none."""
        if self.sharded:
            return 0
        state = self.weights + self.gradients + self.optimizer_state
        room = self.device_bytes - self.residuals - self.messages - (self.sample or 0)
        needed = ceil(state / room) if room > 0 else 0
        return needed if 0 < needed <= MOST_SHARDS else 0

    @property
    def uses(self) -> str:
        """All uses in words."""
        activations = "activations unknown" if self.sample is None else None
        known = {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer": self.optimizer_state,
            "residuals": self.residuals,
            "messages": self.messages,
            "activations": (self.sample or 0) * self.batch_size,
        }
        return ", ".join(
            [*(f"{name} {_gb(size)}" for name, size in known.items() if size), *filter(None, [activations])]
        )

    @property
    def text(self) -> str:
        """One sentence: "fits: 41 of 80 GB", or "does not fit" with what would."""
        if self.fits and self.sample is None:
            return f"at least {self.said} ({self.uses}), so whether it fits is not known"
        if self.fits:
            return f"fits: {self.said} ({self.uses})"
        return f"does not fit: {self.said} at batch {self.batch_size} ({self.uses}); {self.remedy}"

    @property
    def said(self) -> str:
        """The sum: "41 of 80 GB"."""
        return f"{_gb(self.total)} of {_gb(self.device_bytes)} GB"

    def plain(self) -> dict[str, Any]:
        """Return all of it as what JSON can hold."""
        return {**asdict(self), "total": self.total, "fits": self.fits, "text": self.text}

    @property
    def remedy(self) -> str:
        """What would fit: the largest batch, or else sharing the state among devices."""
        if self.largest_batch:
            return f"batch_size={self.largest_batch} would"
        if self.shards > 1:
            return (
                f"one sample would with weights, gradients and optimizer state sharded over {self.shards} devices "
                "(FSDP, ZeRO): sharding=fsdp"
            )
        return "nothing here would make it fit"


def _gb(nbytes: float) -> str:
    return rounded(nbytes / GB, 3) if nbytes >= 0.1 * GB else f"{nbytes / GB:.2f}"


def device_memory(
    profile: Profile, plan: Plan, on: str, *, optimizer: str = "", precision: str = "fp32", batch_size: int = 0
) -> DeviceMemory | None:
    """Return what a rank of `plan` takes on a device of kind `on`; None for a host, whose memory others share.

    `optimizer` and `batch_size` are those of the profile where they are not given. Activations are counted with fused
    attention. Of an unknown optimizer, two copies of the weights are assumed, as Adam keeps; outer ones count with it.
    """
    if not has_sheet(on) or not device(on).pcie_gbps:
        return None
    weights = sum(spec.nbytes for spec in profile.tensors)
    half = precision in SIXTEEN_BIT
    sample, optimizer = _of_model(profile, optimizer, half)
    residuals, messages = scheme_bytes(plan)
    copies = OPTIMIZER_STATE.get(optimizer, 2)
    if (rounds := plan.rounds) is not None:  # outer weights and their momentum, and an exchange of a fragment
        copies += 1 + (rounds.outer_momentum > 0)
        part = weights // rounds.fragments
        # What was sent stays while it is under way; beside it differences or averages, when activations are gone.
        if rounds.delay:
            messages += part
        messages += max(0, (1 if rounds.delay else 2) * part - (sample or 0) * (batch_size or profile.batch_size or 1))
        messages += weights if rounds.ranks_per_group > 1 else 0  # of the exchange inside a group
    return DeviceMemory(
        weights=weights + (weights // 2 if half else 0),
        gradients=weights,
        optimizer_state=copies * weights,
        residuals=residuals,
        messages=messages,
        sample=sample,
        batch_size=batch_size or profile.batch_size or 1,
        device_bytes=round(device(on).memory_gib * GB),
    )


def sharded_memory(
    profile: Profile, found: ShardedPlan, on: str, *, optimizer: str = "", precision: str = "fp32", batch_size: int = 0
) -> DeviceMemory | None:
    """Return what a rank of a sharded model takes on a device of kind `on`; None for a host.

    Weights, gradients and optimizer state are those of the shards, in float32. Besides them there are whole weights:
    of the root, of the largest block and of the one that is gathered ahead, or of all where they stay. The largest
    group's gradients are whole, once more in the message that is reduced.
    """
    if not has_sheet(on) or not device(on).pcie_gbps:
        return None
    sharding, half = found.sharding, precision in SIXTEEN_BIT
    shard = 4 * sum(unit.shard_numel(sharding.shards) for unit in found.units)
    blocks = [unit.numel for unit in found.units if unit.name]
    root = sum(unit.numel for unit in found.units if not unit.name)
    largest = max(blocks, default=root)
    whole = root + (2 * largest if sharding.reshard_after_forward else sum(blocks) + largest)
    gathered, reduced = ITEM_BYTES[sharding.gather_dtype], ITEM_BYTES[sharding.reduce_dtype]
    sample, optimizer = _of_model(profile, optimizer, half)
    residuals, messages = _legs_bytes(found)
    return DeviceMemory(
        weights=shard + gathered * whole,
        gradients=shard + (gathered + reduced) * max(largest, root),
        optimizer_state=OPTIMIZER_STATE.get(optimizer, 2) * shard,
        residuals=residuals,
        messages=messages,
        sample=sample,
        batch_size=batch_size or profile.batch_size or 1,
        device_bytes=round(device(on).memory_gib * GB),
        sharded=True,
    )


def _legs_bytes(found: ShardedPlan) -> tuple[int, int]:
    """Return the residuals of both sums, and their messages beside torch's own.

    Of a compressed sum over shards all groups share buffers: the gradients of the largest group and its shard in
    float32, and its message three times. Chunks that are summed inside nodes first are put in the order
    of neighbours, come from all of them, and are summed in float32. A gather of weights has its shard in float32 and
    every rank's message.
    """
    residuals = messages = 0
    packed = [lane for _, lane in found.shards.lanes() if not is_native(lane)]
    if packed:
        numel, size = max((found.shards.numel(lane), ranks_per_node(lane)) for lane in packed)
        messages += 4 * numel * (found.shards.world_size // size + 1)
        if size > 1:
            messages += (2 * size - 1) * max(summed_inside(found.shards, lane) for lane in packed)
            messages += 4 * numel * found.shards.world_size // size
        messages += 3 * max(handed_over(found.shards, lane) for lane in packed)
    if found.weights is not None:
        messages += max(
            4 * found.weights.numel(lane) + (1 + found.weights.world_size) * handed_over(found.weights, lane)
            for _, lane in found.weights.lanes()
        )
    if found.keeps_whole:
        residuals += sum(
            4 * MEMORY_SIDES * found.shards.numel(lane) * found.shards.world_size // ranks_per_node(lane)
            for lane in packed
        )
    if found.replicas is not None and any(not s.dense for _, lane in found.replicas.lanes() for s in lane.segments):
        kept, sent = scheme_bytes(found.replicas)
        residuals, messages = residuals + kept, messages + sent
    return residuals, messages


def _of_model(profile: Profile, optimizer: str, half: bool) -> tuple[int | None, str]:
    """Return the activations of a sample, None where nothing tells of them, and the optimizer or the customary one."""
    model, _ = given_time(profile.model)
    optimizer = optimizer or profile.optimizer
    if not (is_counted(model) and _same(profile, model)):
        return None, optimizer
    work = model_work(model)
    return work.kept_bytes() // (2 if half else 1), optimizer or work.optimizer


def _same(profile: Profile, model: str) -> bool:
    """Return whether the profile is of the counted model and not of another one of that name."""
    return _elements(model) == sum(profile.numel)


@cache
def _elements(model: str) -> int | None:
    """Return the number of elements of a model, None where it cannot be counted: each try starts a process."""
    try:
        return model_work(model).numel
    except ConfigError:
        return None


def scheme_bytes(plan: Plan) -> tuple[int, int]:
    """Return the bytes that compressors keep on the device, and those of messages with what is received for them.

    A gather receives the message of every rank before anything is decoded; sums happen in place.
    """
    residuals = messages = 0
    for _, lane in plan.lanes():
        for segment in lane.segments:
            if segment.compressor is not None and segment.placement == "device":
                compressor = build(segment.compressor)
                sides = MEMORY_SIDES if compressor.error_feedback and not compressor.lossless else 1
                residuals += 4 * sides * plan.numel(segment)
        nbytes, one = lane_bytes(plan, lane), collectives.build(lane.collective)
        gathers = not one.additive_only and not isinstance(one, Reducer)
        messages += nbytes * (1 + plan.world_size if gathers else 1)
    return residuals, messages
