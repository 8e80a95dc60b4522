"""What `fully_shard` does to a model: groups of tensors that are gathered and reduced at once, and shards of them.

Groups are those that torch's users wrap: every block of a stack, and the root with what is in none. They follow from
the names of the tensors, as a block's name ends in its number.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ssfx.planning.plan import ITEM_BYTES, Plan, TensorSpec

Kind = Literal["fsdp", "hsdp"]

DTYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""By precision, what weights are gathered in and gradients are summed in."""

_BLOCK = re.compile(r"(?:^|.*?\.)\d+(?=\.)")
"""Everything up to the first number in a name that is not the last part."""


@dataclass(frozen=True)
class Sharding:
    """How a model is sharded: over all ranks (fsdp), or over `shards` of them with replicas of every shard (hsdp).

    gather_dtype: what weights are gathered in; reduce_dtype: what gradients are summed in (keys of ITEM_BYTES).
    reshard_after_forward: whether blocks are gathered again for backward; the root never is, as torch has it.
    """

    kind: Kind
    shards: int
    replicas: int = 1
    gather_dtype: str = "float32"
    reduce_dtype: str = "float32"
    reshard_after_forward: bool = True

    def __post_init__(self) -> None:
        if self.shards < 2 or self.replicas < 1 or (self.kind == "fsdp") != (self.replicas == 1):
            raise ValueError(f"{self.kind} over {self.shards} shards and {self.replicas} replicas is no sharding")
        if {self.gather_dtype, self.reduce_dtype} - ITEM_BYTES.keys():
            raise ValueError(f"{self.gather_dtype} and {self.reduce_dtype} must be of {', '.join(ITEM_BYTES)}")

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.shards * self.replicas

    @property
    def text(self) -> str:
        """In words: "fsdp over 64 shards", "hsdp, 8 replicas of 8 shards"."""
        if self.kind == "fsdp":
            return f"fsdp over {self.shards} shards"
        return f"hsdp, {self.replicas} replicas of {self.shards} shards"


@dataclass(frozen=True)
class Unit:
    """A group of `fully_shard`: its name ("" for the root) and its tensors, whole, in the order of forward."""

    name: str
    tensors: tuple[TensorSpec, ...]

    @property
    def numel(self) -> int:
        """Elements of the whole tensors."""
        return sum(spec.numel for spec in self.tensors)

    def shards(self, count: int, dtype: str) -> tuple[TensorSpec, ...]:
        """Return the shard of every tensor, padded to the size of the first rank's, as torch reduces it."""
        return tuple(TensorSpec(spec.name, shard_shape(spec.shape, count), dtype) for spec in self.tensors)

    def shard_numel(self, count: int) -> int:
        """Elements of a rank's shards with their padding."""
        return sum(spec.numel for spec in self.shards(count, "float32"))


@dataclass(frozen=True)
class ShardedPlan:
    """The plans of the sums over shards and over replicas, None without any, and the number of each bucket's group.

    weights: the plan of the gathers of weights, None where they are torch's. keeps_whole: whether every rank keeps a
    residual of the whole model, for the sum over shards.
    """

    sharding: Sharding
    units: tuple[Unit, ...]
    shards: Plan
    replicas: Plan | None
    of_shards: tuple[int, ...]
    of_replicas: tuple[int, ...]
    keeps_whole: bool = False
    weights: Plan | None = None
    of_weights: tuple[int, ...] = ()

    @property
    def plan(self) -> Plan:
        """The plan that `scheme` is about: between replicas, or between shards where there are none."""
        return self.replicas or self.shards


def shard_shape(shape: Sequence[int], count: int) -> tuple[int, ...]:
    """Return the shape of the first of `count` shards along the first dimension, the largest of them."""
    return (-(-shape[0] // count), *shape[1:]) if shape else ()


def block_of(name: str) -> str:
    """Return the name of the block that a tensor is in: up to its first number; "" for one that is in none."""
    found = _BLOCK.match(name)
    return found[0] if found else ""


def units_of(tensors: Iterable[TensorSpec]) -> tuple[Unit, ...]:
    """Return the groups of tensors in backward order: the root first, then blocks as forward meets them.

    The order is that of a model's modules. A root without tensors is left out.
    """
    found: dict[str, list[TensorSpec]] = {"": []}
    for spec in reversed(tuple(tensors)):
        found.setdefault(block_of(spec.name), []).append(spec)
    return tuple(Unit(name, tuple(specs)) for name, specs in found.items() if specs)
