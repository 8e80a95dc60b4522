"""attach(): gradient exchange by a plan, for any torch training script.

    sync = ssfx.attach(model, optimizer, scheme="ssfusion_oi", density=0.01)

From then on `loss.backward()` ends with averaged gradients in `.grad`, as with torch DDP: clipping, GradScaler and any
optimizer work as usual. Nothing is subclassed or wrapped; `sync.detach()` removes every hook.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ssfx.collectives.comm import Comm
from ssfx.collectives.local_comm import LocalComm, own_comm
from ssfx.collectives.torch_comm import TorchComm
from ssfx.core.errors import ConfigError
from ssfx.core.plugins import declared, provided
from ssfx.planning.costs import Costs
from ssfx.planning.exempt import AUTO, kinds_of, most_important
from ssfx.planning.profile import Profile
from ssfx.runtime.checks import check_arguments, check_group, check_held, check_kinds, check_module, unwrapped
from ssfx.runtime.lifetime import check_free
from ssfx.runtime.online import parameter_names
from ssfx.runtime.outer import OuterSync
from ssfx.runtime.setup import memory_of, model_device, notice_voting_zeros, scheme_options
from ssfx.runtime.sync import Sync
from ssfx.schemes import schemes
from ssfx.schemes.other_words import no_scheme

if TYPE_CHECKING:
    from ssfx.sharded.sync import ShardedSync


EXTENSIONS = "ssfx.attach"
"""Entry points by the name of a class that has wrapped a model: what attaches to such a model instead."""


def attach(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    scheme: str = "ddp",
    *,
    compressor: str | None = None,
    density: float | None = None,
    memory: str | None = None,
    scaler: torch.amp.GradScaler | None = None,
    process_group: Any = None,
    comm: Comm | None = None,
    costs: Costs | None = None,
    profile: Profile | None = None,
    seed: int = 0,
    trace: bool = False,
    exempt: str | Sequence[str] = (),
    broadcast_buffers: bool = True,
    **options: Any,
) -> Sync | ShardedSync | OuterSync:
    """Exchange the model's gradients by `scheme` at the end of every backward pass from now on; return the handle.

    Call it on every rank, after the model is on its device and the process group is up (without one, or with one rank,
    gradients pass through untouched). `optimizer`: the one that holds the model's parameters, or a list of all that do;
    wrappers of accelerate and Lightning are seen through. Parameters and buffers are made equal to rank 0's.
    `compressor` and `memory` are specs such as "topk" or "dgc(value_dtype=float16)"; None takes the scheme's default,
    and residual error feedback.
    `scaler`: pass the GradScaler if you use one, so that residuals follow its scale. `costs`: planning input for
    profiled schemes; None measures it when planning. `profile`: the same, with which every scheme plans at once and
    nothing is observed, timed or tried; profiled ones need `costs`, too. `process_group`: None makes one of all ranks
    for the exchange alone; a group that is given must not be used by anything else during backward. `comm`: that of a
    virtual rank, instead of a process group; None takes that of the rank that calls; see `virtual_ranks`. `exempt`:
    kinds of parameters that travel as they are under every scheme, "vectors", "embeddings", "norms", "heads", or
    "auto": of these at most 1 % of all elements.
    `broadcast_buffers`: after every exchange all ranks have rank 0's buffers where they changed, as with DDP. A model
    that `fully_shard` has wrapped exchanges between replicas of shards, or between shards, and returns a ShardedSync.
    Raises ConfigError when the combination cannot work.
    """
    check_kinds(
        {
            "compressor": (compressor, str),
            "memory": (memory, str),
            "density": (density, (Real, str)),
            "scaler": (scaler, torch.amp.GradScaler),
            "costs": (costs, Costs),
            "profile": (profile, Profile),
            "comm": (comm, Comm),
            "seed": (seed, Integral),
            "trace": (trace, bool),
            "broadcast_buffers": (broadcast_buffers, bool),
        }
    )
    if torch.is_inference_mode_enabled():
        raise ConfigError("attach writes weights, which torch.inference_mode forbids; call it outside, or in no_grad")
    extension = _extension(model)
    if comm is None and process_group is None:
        comm = own_comm()
    if comm is None:
        check_group(None if extension else process_group)
    if extension:
        if comm is not None:
            raise ConfigError("virtual ranks exchange gradients of whole models; train sharded ones by torchrun")
        return extension(
            model,
            optimizer,
            scheme=scheme,
            compressor=compressor,
            density=density,
            memory=memory,
            scaler=scaler,
            seed=seed,
            exempt=exempt_names(model, exempt),
            options=options,
            process_group=process_group,
            costs=costs,
            trace=trace,
            broadcast_buffers=broadcast_buffers,
        )
    check_module(model)
    if isinstance(comm, LocalComm):
        comm.world.give(model, comm.rank)
    check_free(model)
    optimizers = unwrapped(optimizer)
    check_held(parameter_names(model), optimizers)
    if scheme not in schemes:
        raise no_scheme(scheme, python=True)
    entry = schemes[scheme]
    check_arguments(options, [field.name for field in fields(entry.defaults)])
    if profile is not None and costs is None and entry.profiled:
        raise ConfigError(f"{scheme} plans from costs, too; give costs= beside profile=")
    given = scheme_options(compressor, density, options)
    spec = entry.online(given).compressor
    device = model_device(model)
    comm = comm.of_model(device) if comm is not None else TorchComm(process_group, device)
    if (rounds := entry.online(given).rounds) is not None:
        for name, value in (("trace", trace), ("costs", costs), ("profile", profile)):
            if value:
                raise ConfigError(
                    f"{name} is for exchanges of every step; drop it, as scheme={scheme} makes one a round"
                )
        return OuterSync(
            model,
            optimizers,
            scheme=scheme,
            given=given,
            rounds=rounds,
            memory=memory_of(entry, spec, memory, (), entry.online(given).memory),
            scaler=scaler,
            comm=comm,
            seed=seed,
            exempt=exempt_names(model, exempt),
            broadcast_buffers=broadcast_buffers,
        )
    if comm.world_size > 1:
        notice_voting_zeros(model, spec, comm.rank)
    return Sync(
        model,
        optimizers,
        scheme=scheme,
        given=given,
        memory=memory_of(entry, spec, memory, optimizers),
        scaler=scaler,
        comm=comm,
        costs=costs,
        profile=profile,
        seed=seed,
        trace=trace,
        exempt=exempt_names(model, exempt),
        broadcast_buffers=broadcast_buffers,
    )


def _extension(model: object) -> Callable[..., ShardedSync] | None:
    """Return what attaches to a model that a class of EXTENSIONS has wrapped, or a part of it; None without one."""
    parts = model.modules() if isinstance(model, torch.nn.Module) else ()
    kinds = {kind.__name__ for part in parts for kind in type(part).__mro__}
    return next((provided(EXTENSIONS, name) for name in declared(EXTENSIONS) if name in kinds), None)


def attach_whole(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer], **options: Any
) -> Sync:
    """As `attach`, for Lightning's adapter: ConfigError for a model that `fully_shard` has wrapped."""
    sync = attach(model, optimizer, **options)
    if isinstance(sync, Sync):
        return sync
    sync.detach()
    if isinstance(sync, OuterSync):
        raise ConfigError("this takes schemes that exchange every step; local updates go into a loop of your own")
    raise ConfigError(
        "this takes whole models, and fully_shard has wrapped this one; call ssfx.attach in a training loop of your "
        "own, or ssfx.runtime.integrations.hf.prepare in one of accelerate"
    )


def of_run(options: Mapping[str, Any], *, clipped: bool) -> dict[str, Any]:
    """Return options of `attach` with what a trainer knows of its run, where the scheme asks and they are not given."""
    return schemes[options.get("scheme", "ddp")].for_run(options, 0, clipped)


def exempt_names(model: nn.Module, kinds: str | Sequence[str]) -> frozenset[str]:
    """Return the parameters of `kinds`, frozen ones too: "vectors" of at most one dimension, "embeddings", "norms".

    `kinds` is a sequence, or a text with commas. A norm is a module whose class has Norm in its name, the "heads" are
    the weight of the last nn.Linear. "auto": of all these what `most_important` returns. ConfigError for another kind.
    """
    asked = kinds_of(kinds)
    named = {name.replace("_orig_mod.", ""): p for name, p in model.named_parameters()}
    if "auto" in asked:
        numel = {name: p.numel() for name, p in named.items()}
        chosen = most_important([exempt_names(model, [kind]) for kind in AUTO], numel)
        return chosen | exempt_names(model, [kind for kind in asked if kind != "auto"])
    taken: set[int] = set()
    for module in model.modules():
        norm = any("Norm" in kind.__name__ for kind in type(module).__mro__)
        table = isinstance(module, (nn.Embedding, nn.EmbeddingBag))
        if (norm and "norms" in asked) or (table and "embeddings" in asked):
            taken |= {id(p) for p in module.parameters(recurse=False)}
    if "vectors" in asked:
        taken |= {id(p) for p in model.parameters() if p.ndim <= 1}
    if "heads" in asked:
        taken |= {id(one.weight) for one in [one for one in model.modules() if isinstance(one, nn.Linear)][-1:]}
    return frozenset(name for name, p in named.items() if id(p) in taken)
