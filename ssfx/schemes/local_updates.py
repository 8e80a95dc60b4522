"""Local updates: ranks train alone for many steps, then exchange weights; the plan is that of one exchange.

    d = w_outer - w_rank;  v <- m v + mean(d);  w_outer <- w_outer - lr (mean(d) + m v);  w_rank <- w_outer

Another scheme of this package plans the exchange of d, as it would that of a gradient.
"""

from dataclasses import dataclass, replace
from typing import Annotated

from ssfx.core.errors import ConfigError
from ssfx.planning.costs import Costs
from ssfx.planning.plan import Plan, TensorSpec
from ssfx.planning.profile import Profile
from ssfx.planning.rounds import Rounds
from ssfx.schemes.base import CompressOptions, DenseOptions, Scheme, SchemeOptions, scheme
from ssfx.schemes.ddp import DdpOptions, plan_ddp
from ssfx.schemes.ddp_quantized import DdpBf16Options, DdpQuantizedOptions, plan_ddp_bf16, plan_ddp_quantized
from ssfx.schemes.online_planning import OnlinePlanning
from ssfx.schemes.per_tensor import PerTensorOptions, plan_per_tensor

FEW_ROUNDS = 200
"""With fewer an outer momentum of 0.9 is behind the plain mean."""


@dataclass(frozen=True, kw_only=True)
class _RoundOptions(SchemeOptions):
    """`every`: steps between two exchanges of the same weights.

    `ranks_per_group`: so many neighbours by rank average gradients every step, as ddp does, and rounds are between such
    groups. 0: commands put the devices of a node, `attach` lets each rank step alone.
    """

    every: Annotated[int, 1] = 128
    ranks_per_group: Annotated[int, 0] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rounds()

    def rounds(self) -> Rounds:
        """Return when weights are exchanged, and what their average does: it takes the place of the weights."""
        return Rounds(self.every, ranks_per_group=self.ranks_per_group or 1)

    def online(self) -> OnlinePlanning:
        """Return the rounds beside what the exchange asks for."""
        return replace(super().online(), rounds=self.rounds(), observed_steps=0)


@dataclass(frozen=True, kw_only=True)
class _OuterOptions(_RoundOptions):
    """`outer_lr`, `outer_momentum`: of the outer step. `run_steps`: steps of the whole run; 0: not known.

    The published 0.7 and 0.9 move seven times the mean: they are for FEW_ROUNDS and more. A run that is known to have
    fewer says so.
    """

    outer_lr: Annotated[float, "(0, inf)"] = 0.7
    outer_momentum: Annotated[float, "[0, 1)"] = 0.9
    run_steps: Annotated[int, 0] = 0

    def rounds(self) -> Rounds:
        """Return the same with an outer step."""
        return replace(super().rounds(), outer_lr=self.outer_lr, outer_momentum=self.outer_momentum)

    def online(self) -> OnlinePlanning:
        """Return the same with the steps of the run."""
        return replace(super().online(), run_steps=self.run_steps)


@dataclass(frozen=True, kw_only=True)
class LocalSgdOptions(_RoundOptions, DenseOptions):
    """The plain mean of weights. `dense_steps`: before the first round ranks train as ddp does (post-local SGD)."""

    every: Annotated[int, 1] = 8
    dense_steps: Annotated[int, 0] = 0

    def online(self) -> OnlinePlanning:
        """Return the rounds, and the steps before them."""
        return replace(super().online(), dense_steps=self.dense_steps)


@dataclass(frozen=True, kw_only=True)
class DiLoCoOptions(_OuterOptions, DenseOptions):
    """Differences of weights travel in 16 bits. `ranks_per_node`: as of ddp_quantized."""

    compressor: str | None = "bf16"
    ranks_per_node: Annotated[int, 0] = 0


@dataclass(frozen=True, kw_only=True)
class StreamingOptions(_OuterOptions, CompressOptions):
    """`fragments` of the model go by turns, in four bits; each is waited for `delay` steps later.

    What a rank has learnt in the meantime stays beside the new outer weights. `ranks_per_node`: as of ddp_quantized.
    """

    compressor: str = "qsgd(bits=4,bucket=48,norm=max)"
    fragments: Annotated[int, 1] = 4
    delay: Annotated[int, 0] = 4
    ranks_per_node: Annotated[int, 0] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_dense_steps(self)

    def rounds(self) -> Rounds:
        """Return when fragments are exchanged."""
        return replace(super().rounds(), fragments=self.fragments, delay=self.delay)


@dataclass(frozen=True, kw_only=True)
class SparseLoCoOptions(_RoundOptions, CompressOptions):
    """The 64 largest of 4,096 numbers, 14 bits each; what is not sent is fed back, decayed, in place of a momentum."""

    compressor: str = "chunk_topm(m=64,packed=True)"
    density: Annotated[float, "(0, 1]"] = 1 / 64
    every: Annotated[int, 1] = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_dense_steps(self)

    def online(self) -> OnlinePlanning:
        """Return the rounds, and a memory that forgets."""
        return replace(super().online(), memory="momentum(decay=0.95)")


def _refuse_dense_steps(options: CompressOptions) -> None:
    if options.dense_steps:
        raise ValueError("dense_steps is of schemes that exchange every step, and of local_sgd; drop it")


@scheme(
    "local_sgd",
    summary="ranks step alone, then weights are averaged",
    source="Stich 2018 (local SGD); Lin et al. 2018 (post-local SGD)",
    defaults=LocalSgdOptions(),
    fusion_unit="bucket",
    collectives=("all_reduce",),
    compressors="additive",
)
def plan_local_sgd(profile: Profile, costs: Costs, options: LocalSgdOptions) -> Plan:
    """Return the plan of one exchange, by DDP's buckets."""
    return _in_rounds("local_sgd", plan_ddp(profile, costs, DdpOptions(compressor=options.compressor)), options)


@scheme(
    "diloco",
    summary="ranks step alone, then weights are exchanged in 16 bits and an outer step has Nesterov's momentum",
    source="Douillard et al. 2023 (DiLoCo), algorithm 1",
    defaults=DiLoCoOptions(),
    fusion_unit="bucket",
    collectives=("quantized_all_reduce", "all_reduce"),
    compressors="bf16, fp16",
)
def plan_diloco(profile: Profile, costs: Costs, options: DiLoCoOptions) -> Plan:
    """Return the plan of one exchange, by DDP's buckets in 16 bits, summed in float32."""
    if options.compressor is None:
        raise ConfigError("scheme=diloco sends 16 bits: compressor=bf16 or fp16; scheme=local_sgd sends 32")
    exchange = DdpBf16Options(compressor=options.compressor, ranks_per_node=options.ranks_per_node)
    return _in_rounds("diloco", plan_ddp_bf16(profile, costs, exchange), options)


@scheme(
    "streaming_diloco",
    summary="as diloco, a fragment at a time in four bits, hidden behind the next steps",
    source="Douillard et al. 2025 (Streaming DiLoCo), algorithm 2",
    defaults=StreamingOptions(),
    fusion_unit="bucket",
    collectives=("quantized_all_reduce", "all_reduce"),
    compressors="bf16, fp16, fp8, qsgd",
)
def plan_streaming_diloco(profile: Profile, costs: Costs, options: StreamingOptions) -> Plan:
    """Return the plan of one exchange of all fragments, by DDP's buckets in few bits, summed in float32."""
    exchange = DdpQuantizedOptions(compressor=options.compressor, ranks_per_node=options.ranks_per_node)
    return _in_rounds("streaming_diloco", plan_ddp_quantized(profile, costs, exchange), options)


@scheme(
    "sparseloco",
    summary="as diloco, the largest of each chunk with decayed error feedback and no outer momentum",
    source="Sarfi et al. 2025 (SparseLoCo), algorithm 1",
    defaults=SparseLoCoOptions(),
    fusion_unit="tensor",
    collectives=("all_gather", "all_reduce"),
)
def plan_sparseloco(profile: Profile, costs: Costs, options: SparseLoCoOptions) -> Plan:
    """Return the plan of one exchange, a compressor call per tensor."""
    exchange = PerTensorOptions(compressor=options.compressor, density=options.density)
    return _in_rounds("sparseloco", plan_per_tensor(profile, costs, exchange), options)


def outer_step_of(scheme: Scheme, run_steps: int) -> dict[str, float]:
    """Return the outer step for a run of so many steps, where it is not the scheme's default: the mean."""
    rounds = scheme.defaults.online().rounds
    few = rounds is not None and rounds.outer_momentum > 0 and 0 < run_steps < FEW_ROUNDS * rounds.every
    return {"outer_lr": 1.0, "outer_momentum": 0.0} if few else {}


def too_few(rounds: Rounds, run_steps: int) -> str:
    """Return the warning for a run that is too short for its outer momentum; "" where it is long enough."""
    lr, momentum, made = rounds.outer_lr, rounds.outer_momentum, run_steps // rounds.every
    if not momentum or not 0 < made < FEW_ROUNDS:
        return ""
    return (
        f"{made} rounds are few for outer_lr={lr:g} and outer_momentum={momentum:g}, which move "
        f"{lr / (1 - momentum):.1f} times the mean: with fewer than {FEW_ROUNDS} use outer_lr=1.0, outer_momentum=0.0"
    )


def _in_rounds(name: str, plan: Plan, options: _RoundOptions) -> Plan:
    ranks, size = plan.world_size, options.ranks_per_group or 1
    if ranks % size:
        nearest = min((n for n in range(1, ranks + 1) if ranks % n == 0), key=lambda n: abs(n - size))
        raise ConfigError(f"{ranks} ranks do not fill groups of ranks_per_group={size}; use ranks_per_group={nearest}")
    return replace(plan, scheme=name, overlap=False, rounds=options.rounds())


def fragments(base: Profile, count: int) -> list[Profile]:
    """Return neighbours of about equal size, in the order in which gradients arrive; each tensor in one of them."""
    if len(base.tensors) < count:
        raise ConfigError(f"fragments={count} is more than the {len(base.tensors)} tensors of this model; use fewer")
    total, done = sum(base.numel), 0
    parts: list[list[TensorSpec]] = [[]]
    for at, spec in enumerate(base.tensors):
        needed = count - len(parts)
        if parts[-1] and needed and (done >= total * len(parts) / count or len(base.tensors) - at == needed):
            parts.append([])
        parts[-1].append(spec)
        done += spec.numel
    return [
        Profile(base.model, tuple(specs), (0.0,) * len(specs), 0.0, base.origin, optimizer=base.optimizer)
        for specs in parts
    ]
