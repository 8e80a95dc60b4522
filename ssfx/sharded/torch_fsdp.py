"""The only module that knows the private classes of torch's `fully_shard`, and looks whether they are as it expects.

A group is what `fully_shard` gathers and reduces at once: the parameters of one wrapped module. On a mesh of two
dimensions (HSDP) torch reduces a group's gradients over its shards, and then sums each shard over its replicas. ssfx
replaces the first sum by a custom reduce-scatter, and the second by a hook, with a group of one rank for torch's sum.
Gathers of weights are replaced by a custom all-gather.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule

from ssfx.core.errors import ConfigError, RunError

Hook = Callable[[torch.Tensor], None]
Reduce = Callable[[torch.Tensor, torch.Tensor, float, Callable[[], None]], None]
"""Fills the first tensor, this rank's shards, with the sum of the second over ranks times the number.

The function makes torch do so itself.
"""
Gather = Callable[[torch.Tensor, torch.Tensor, Callable[[], None]], None]
"""Fills the first tensor, the shards of all ranks, from the second, this rank's, which is a part of it.

The function makes torch do so itself.
"""

_GROUP = (
    "fsdp_params",
    "mesh_info",
    "offload_policy",
    "gradient_divide_factor",
    "_all_reduce_hook",
    "_reduce_scatter_comm",
    "_partial_reduce_output",
    "_all_gather_comm",
    "post_forward_mesh_info",
)
_PARAM = ("sharded_param", "padded_sharded_param_size", "is_dtensor", "mp_policy")
_MESH = ("mesh", "shard_mesh_dim", "replicate_mesh_dim")

_alone: list[tuple[Any, Any]] = []
"""The default group and the group of this rank alone that was made under it; kept, because groups are never closed."""


def groups_of(model: torch.nn.Module) -> list[ShardGroup]:
    """Return the groups of a model, in the order of its modules; at least one has a trainable parameter.

    ConfigError where torch keeps them in another form, or where an exchange would be wrong: several groups in a module,
    tensor parallelism, parameters on the CPU or in no group.
    """
    wrapped = [(name, part) for name, part in model.named_modules() if isinstance(part, FSDPModule)]
    for _, part in wrapped:
        part.reshard()  # else parameters of the root may still be whole after an evaluation
    names = {id(p): name.replace("_orig_mod.", "") for name, p in model.named_parameters()}
    groups, seen = [], set()
    for name, part in wrapped:
        state = _expected(part, "_get_fsdp_state")()
        if id(state) in seen:
            continue
        seen.add(id(state))
        raw = _raw_groups(state)
        if len(raw) > 1:
            raise ConfigError(
                f"module {name or 'root'} has several groups of parameters (shard_placement_fn with meshes of its own),"
                " for which torch takes no exchange; wrap the modules of each mesh by a fully_shard of their own"
            )
        groups += [ShardGroup(part, name or "root", one, names) for one in raw]
    taken = {name for group in groups for name in group.names}
    for name, p in model.named_parameters():
        if p.requires_grad and name.replace("_orig_mod.", "") not in taken:
            raise ConfigError(f"parameter {name} is in no fully_shard group; call fully_shard(model) on the root, too")
    if not taken:
        raise ConfigError("the model has no trainable parameters")
    return groups


def _raw_groups(state: Any) -> list[Any]:
    """Return torch's groups of a wrapped module; torch 2.11 has at most one, under another name."""
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    one = _expected(state, "_fsdp_param_group")
    return [] if one is None else [one]


def _expected(owner: Any, *names: str) -> Any:
    """Return the first of these attributes; ConfigError if torch has come to keep any of them elsewhere."""
    missing = [name for name in names if not hasattr(owner, name)]
    if missing:
        raise ConfigError(
            f"torch {torch.__version__} keeps {type(owner).__name__}.{missing[0]} of fully_shard in another form than "
            "2.11 to 2.15, which ssfx knows; use one of these, or attach to a model without fully_shard"
        )
    return getattr(owner, names[0])


def _gradient_dtype(one: Any) -> torch.dtype | None:
    """Return the dtype of a sharded gradient; None: any that comes, which torch has from 2.15 on (grad_dtype)."""
    own: torch.dtype = one.sharded_param.dtype
    return one.sharded_grad_dtype if getattr(one, "_has_sharded_grad_dtype_override", False) else own


def _reduced_in(one: Any) -> torch.dtype:
    """Return the dtype in which torch reduces: the policy's, else the gradient's; before 2.15 the weights'."""
    computed: torch.dtype = one.mp_policy.param_dtype or one.sharded_param.dtype
    otherwise = (_gradient_dtype(one) or computed) if hasattr(one, "sharded_grad_dtype") else computed
    return one.mp_policy.reduce_dtype or otherwise


class ShardGroup:
    """One group of `fully_shard`: names and padded shapes of its trainable shards, and the places to hook into.

    `names` is empty where all parameters are frozen. `whole_shapes` are of frozen shards, too: torch gathers them.

    The buffer that torch reduces holds the shards one after the other, each padded to the size of the first rank's, so
    that shapes and offsets are the same on all ranks. Padding is zeros.
    """

    def __init__(self, module: FSDPModule, name: str, raw: Any, names: dict[int, str]) -> None:
        _expected(raw, *_GROUP)
        self.name = name
        self._module, self._raw = module, raw
        self._native_info, self._native_comm = raw.mesh_info, raw._reduce_scatter_comm
        self._native_gather = raw._all_gather_comm
        _expected(raw.mesh_info, *_MESH)
        self._members = []
        for one in raw.fsdp_params:
            _expected(one, *_PARAM)
            if one.is_dtensor:
                raise ConfigError(
                    f"parameter {names.get(id(one.sharded_param), '')} was split before fully_shard (tensor or expert "
                    "parallelism), which ssfx does not exchange; train with fully_shard alone"
                )
            if one.sharded_param.is_meta:
                raise ConfigError(
                    f"parameter {names.get(id(one.sharded_param), '')} is on the meta device and has no values; call "
                    "model.to_empty(device=...) and fill it, then attach"
                )
            if one.sharded_param.requires_grad:
                self._members.append((names[id(one.sharded_param)], one))
        first = list(dict.fromkeys(_gradient_dtype(one) for one in raw.fsdp_params))
        self._members.sort(key=lambda member: first.index(_gradient_dtype(member[1])))  # as torch reduces them
        self.names = [member for member, _ in self._members]
        self.shapes = {member: tuple(one.padded_sharded_param_size) for member, one in self._members}
        self.whole_shapes = {
            names[id(one.sharded_param)]: tuple(one.padded_sharded_param_size) for one in raw.fsdp_params
        }
        if isinstance(raw.offload_policy, CPUOffloadPolicy):
            raise ConfigError(f"group {name} keeps its shards on the CPU (CPUOffloadPolicy); leave offload_policy out")
        if raw._all_reduce_hook is not None:
            raise ConfigError(f"group {name} has an all_reduce_hook already; leave it out, or train without ssfx")

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that gradients are reduced in."""
        return functools.reduce(torch.promote_types, (_reduced_in(one) for _, one in self._members))

    def gather_dtype(self) -> torch.dtype:
        """Return the dtype that weights are gathered in; ConfigError where torch gathers something else than shards."""
        found: set[torch.dtype] = {
            one.mp_policy.param_dtype or one.sharded_param.dtype for one in self._raw.fsdp_params
        }
        if any(hasattr(local_shard(one.sharded_param), "fsdp_pre_all_gather") for one in self._raw.fsdp_params):
            why = "tensors that change themselves before they are gathered (fsdp_pre_all_gather)"
        elif self._raw.post_forward_mesh_info not in (None, self._native_info):
            why = "a mesh of its own after forward (reshard_after_forward is a number)"
        elif len(found) > 1:
            why = f"weights of several dtypes ({', '.join(sorted(map(str, found)))})"
        else:
            return found.pop()
        raise ConfigError(f"group {self.name} has {why}, which torch's gathers alone take; leave weights out")

    @property
    def replicas(self) -> Any:
        """The process group of the ranks that hold this rank's shard; None on a mesh of one dimension."""
        return self._native_info.replicate_process_group if self._native_info.replicate_mesh_dim is not None else None

    @property
    def shards(self) -> Any:
        """The process group over which the group is sharded; None where every rank holds all of it."""
        return self._native_info.shard_process_group if self._native_info.shard_mesh_dim is not None else None

    @property
    def divides_by(self) -> float | None:
        """What sums are divided by (set_gradient_divide_factor); None: the number of ranks."""
        factor: float | None = self._raw.gradient_divide_factor
        return factor

    @property
    def accumulating(self) -> bool:
        """Whether torch holds sums over shards that were not summed over replicas yet (set_requires_all_reduce)."""
        return self._raw._partial_reduce_output is not None

    def parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yield name and sharded parameter, as they are now: torch may put others in their place."""
        for name, one in self._members:
            yield name, one.sharded_param

    def local_shards(self) -> list[torch.Tensor]:
        """Return this rank's part of every trainable parameter, without padding; to write to it changes the weights."""
        return [local_shard(p) for _, p in self.parameters()]

    @property
    def numel(self) -> int:
        """Number of elements of a rank's shards with their padding."""
        return sum(torch.Size(shape).numel() for shape in self.shapes.values())

    def views(self, reduced: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the shards in the buffer that torch has reduced, by name; RunError if it does not hold all of them."""
        expected = self.numel
        if reduced.numel() != expected or reduced.dtype != self.dtype:
            raise RunError(
                f"group {self.name} reduced {reduced.numel()} numbers in {reduced.dtype} instead of {expected} in "
                f"{self.dtype}: a parameter had no gradient, or was frozen after attach; call "
                "model.set_reduce_scatter_unused_params(True), which torch has from 2.13 on, or detach and attach again"
            )
        views, offset = {}, 0
        for name, shape in self.shapes.items():
            size = torch.Size(shape)
            views[name] = reduced[offset : offset + size.numel()].view(size)
            offset += size.numel()
        return views

    def replace_all_reduce(self, hook: Hook) -> None:
        """`hook` is called with the reduced shards, in the stream of torch's own all-reduce, which sends nothing."""
        info = copy.copy(self._native_info)
        info.replicate_process_group = _this_rank_alone()
        self._raw.mesh_info = info
        self._module.set_all_reduce_hook(hook)

    def replace_reduce_scatter(self, reduce: Reduce) -> None:
        """`reduce` sums over shards from now on, in the stream of torch's own reduce-scatter."""
        comm = _ReduceScatter(reduce, self._native_comm, lambda: self.divides_by)
        self._module.set_custom_reduce_scatter(comm)  # type: ignore[arg-type]

    def replace_all_gather(self, gather: Gather) -> None:
        """`gather` collects weights from now on, in the stream of torch's own all-gather."""
        self._module.set_custom_all_gather(_AllGather(gather, self._native_gather))  # type: ignore[arg-type]

    def restore(self) -> None:
        """Torch's own exchange is back, and weights that are whole still are gathered anew."""
        if self._raw._all_gather_comm is not self._native_gather:
            self._raw._all_gather_comm = self._native_gather
            self._module.reshard()
        self._raw.mesh_info = self._native_info
        self._raw._all_reduce_hook = None
        self._raw._reduce_scatter_comm = self._native_comm


class _ReduceScatter:
    """What torch asks of a custom reduce-scatter: memory, and the sum."""

    def __init__(self, reduce: Reduce, native: Any, divides_by: Callable[[], float | None]) -> None:
        self._reduce, self._native, self._divides_by = reduce, native, divides_by

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        made: torch.Tensor = self._native.allocate(size, dtype=dtype, device=device)
        return made

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        def natively() -> None:
            self._native(output_tensor=output_tensor, input_tensor=input_tensor, group=group, op=op)

        divisor = group.size() if op == dist.ReduceOp.AVG else 1.0
        if op not in (dist.ReduceOp.AVG, dist.ReduceOp.SUM):  # PREMUL_SUM, which does not tell its factor
            divisor = self._divides_by() or 1.0
        self._reduce(output_tensor, input_tensor, 1.0 / divisor, natively)


class _AllGather:
    """What torch asks of a custom all-gather: memory, and the gather."""

    def __init__(self, gather: Gather, native: Any) -> None:
        self._gather, self._native = gather, native

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        made: torch.Tensor = self._native.allocate(size, dtype=dtype, device=device)
        return made

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, async_op: bool = False
    ) -> None:
        def natively() -> None:
            self._native(output_tensor=output_tensor, input_tensor=input_tensor, group=group)

        self._gather(output_tensor, input_tensor, natively)


def local_shard(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a sharded parameter or gradient, outside of autograd."""
    shard: torch.Tensor = tensor.detach().to_local()  # type: ignore[attr-defined]
    return shard


def _this_rank_alone() -> Any:
    world = dist.group.WORLD
    if not _alone or _alone[0][0] is not world:
        _alone[:] = [(world, dist.new_group([dist.get_rank()], use_local_synchronization=True))]
    return _alone[0][1]
