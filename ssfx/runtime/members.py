"""Which weights are exchanged: every one that any rank trains, as torch DDP does, regardless of its optimizer.

A rank sees at the start of an exchange whether what it trains has changed: weights were frozen, thawed, added or
replaced, gradients have another dtype, or there was no backward pass. The other ranks must know in this very step. A
rank that has news therefore sends NaN in place of one gradient (`alarm`). Every rank then receives a number that is not
finite, undoes the exchange as it would for an overflow, and all of them tell each other what they train (`agree`). The
exchange is then repeated by what they agreed on. Steps without news cost nothing. After news, ranks compare one number
before each of the next exchanges, so that weights which are frozen in turns cost one small message.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from operator import is_
from typing import Any
from weakref import finalize

import torch
from torch.nn.modules import module as torch_module
from torch.nn.parameter import is_lazy

from ssfx.collectives.comm import Comm
from ssfx.core.errors import ConfigError
from ssfx.planning.plan import ITEM_BYTES
from ssfx.runtime.checks import gather_facts
from ssfx.runtime.online import expected_dtype
from ssfx.runtime.setup import broadcast_tensors

_log = logging.getLogger("ssfx")
_WATCHED_STEPS = 64
"""So many exchanges after news begin with a comparison."""


@dataclass(frozen=True)
class Agreed:
    """What all ranks found: `trained` maps names to gradient dtypes, in the model's order.

    `resting` weights are frozen on all ranks. `idle`: no rank has a gradient.
    """

    trained: Mapping[str, str]
    resting: frozenset[str]
    idle: bool


class Members:
    """What this rank trains of a model, and what all ranks agreed on; `params` are all weights that may be trained.

    `exchanged` are those in the plan, in the model's order, and `resting` those of them that are frozen on all ranks.
    """

    _registrations = 0

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self.params = trainable_kinds(model)
        self.ids = {id(p) for p in self.params.values()}
        self.exchanged = {name: p for name, p in self.params.items() if p.requires_grad}
        self.resting: frozenset[str] = frozenset()
        self.dtypes = {name: expected_dtype(p) for name, p in self.params.items()}
        self._came: dict[str, None] = {}
        """News of weights: they are new, have another dtype than was said, or have left the model."""
        self._note_places()
        self._said()
        self._unequal: list[str] = []
        """Weights that are to be made equal on all ranks once the backward pass has ended."""
        self._watched = 0
        self.idle = False
        """This rank takes part in an exchange without a backward pass of its own."""
        self._seen = Members._registrations
        handles = [
            torch_module.register_module_parameter_registration_hook(_count),
            torch_module.register_module_module_registration_hook(_count),
        ]
        self._stop = finalize(self, _remove, handles)  # torch keeps them for all modules, whoever drops this

    def close(self) -> None:
        """Stop listening."""
        self._stop()

    def look(self) -> None:
        """Find parameters that were put in past registration: `_parameters[name] = ...`, or `_apply` that overwrites.

        Not within a forward pass: `functional_call` swaps parameters for its length.
        """
        if not all(map(is_, map(dict.get, self._dicts, self._keys), self._held)):
            _count()

    def _note_places(self) -> None:
        modules = self._model.modules()
        places = [(m._parameters, key, p) for m in modules for key, p in m._parameters.items() if p is not None]
        self._dicts = [place[0] for place in places]
        self._keys = [place[1] for place in places]
        self._held = [place[2] for place in places]
        self._lazy = [p for p in self._held if is_lazy(p)]
        """Without a shape before their first batch; torch gives them one in place."""

    @property
    def stale(self) -> bool:
        """True if some module has got a parameter or a module since the last look, or a lazy one its shape."""
        return self._seen != Members._registrations or not all(map(is_lazy, self._lazy))

    def refresh(self) -> dict[str, torch.nn.Parameter]:
        """Return the weights that came, or were replaced, since the last call; a comparison of two numbers if none."""
        if not self.stale:
            return {}
        self._seen = Members._registrations
        self._note_places()
        now = trainable_kinds(self._model)
        came = {name: p for name, p in now.items() if self.params.get(name) is not p}
        left = [name for name in self.exchanged if name not in now]
        self.params, self.ids = now, {id(p) for p in now.values()}
        self.dtypes = {name: self.dtypes.get(name, expected_dtype(p)) for name, p in now.items()}
        self.dtypes |= {name: expected_dtype(p) for name, p in came.items()}
        self.exchanged |= {name: p for name, p in came.items() if name in self.exchanged}
        self._came |= dict.fromkeys([*came, *left])
        return came

    def arrived(self, name: str, grad: torch.Tensor) -> bool:
        """Note the dtype of a gradient; return whether it is the one that all ranks send."""
        dtype = str(grad.dtype).removeprefix("torch.")
        if self.dtypes[name] == dtype:
            return True
        self.dtypes[name] = dtype
        self._came[name] = None
        return False

    def reshaped(self, name: str) -> None:
        """Note that a weight has another shape than was planned: the script gave its `.data` one."""
        self._came[name] = None

    @property
    def watching(self) -> bool:
        """True for some exchanges after news, which begin with a comparison; the same on all ranks."""
        return self._watched > 0

    def news(self) -> bool:
        """Return whether the other ranks must hear from this one before gradients are averaged."""
        return self.idle or bool(self._came) or [p.requires_grad for p in self._listed] != self._flags

    def _said(self) -> None:
        """The other ranks know what this one trains."""
        self._listed = list(self.params.values())
        self._flags = [p.requires_grad for p in self._listed]
        self._came = {}

    def heard(self, comm: Comm, *, mine: bool) -> bool:
        """Return whether any rank has news; `mine`: this one has. All ranks call it together."""
        self._watched = max(0, self._watched - 1)
        flag = torch.tensor([float(mine)], dtype=torch.float32, device=comm.device)
        return bool(comm.all_reduce(flag, op="max").wait())

    def agree(self, comm: Comm) -> Agreed:
        """Return what all ranks train, once they have exchanged their lists; they call it together.

        ConfigError on all of them where a weight is trained that a rank does not have, or has in another shape or
        dtype.
        """
        self._watched = _WATCHED_STEPS
        facts = {
            name: [tuple(p.shape), self.dtypes[name] if p.grad is not None else "", p.requires_grad]
            for name, p in self.params.items()
        }
        mine = {"params": json.dumps(facts), "came": json.dumps(list(self._came)), "idle": json.dumps(self.idle)}
        everyone = [{key: json.loads(text) for key, text in one.items()} for one in gather_facts(comm, mine)]
        order = [name for one in everyone for name in one["params"]]
        trained = dict[str, str]()
        for name in dict.fromkeys(order):
            held = [one["params"].get(name) for one in everyone]
            if not any(fact is not None and fact[2] for fact in held) and name not in self.exchanged:
                continue
            if trained_as := _common_dtype(name, held, self.dtypes.get(name, "float32")):
                trained[name] = trained_as
        resting = frozenset(n for n in trained if not any(one["params"][n][2] for one in everyone))
        came = dict.fromkeys(name for one in everyone for name in one["came"] if name in trained)
        self.exchanged.clear()
        self.exchanged |= {name: self.params[name] for name in trained}
        self.dtypes |= trained
        self.resting = resting
        self._unequal += came
        self._said()
        return Agreed(trained, resting, all(one["idle"] for one in everyone))

    def make_equal(self, comm: Comm) -> None:
        """Weights that came to the model have rank 0's values on all ranks; not inside backward, which needs theirs."""
        if self._unequal:
            broadcast_tensors([self.params[name] for name in self._unequal], comm)
            if comm.rank == 0:
                _log.info("exchanged from now on: %s", ", ".join(self._unequal))
            self._unequal = []


def trainable_kinds(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Return the weights that can have a gradient, frozen ones too, by name without the prefix of torch.compile."""
    return {name.replace("_orig_mod.", ""): p for name, p in model.named_parameters() if _may_have_gradient(p)}


def _may_have_gradient(param: torch.nn.Parameter) -> bool:
    return (param.is_floating_point() or param.is_complex()) and not is_lazy(param)


def listen(param: torch.nn.Parameter, hook: Any) -> Any:
    """Call `hook` whenever autograd has added to the gradient of `param`, frozen now or not; return the handle."""
    frozen = not param.requires_grad
    if frozen:
        param.requires_grad_(True)  # torch sets no such hook on a frozen weight, and keeps it when it is frozen again
    handle = param.register_post_accumulate_grad_hook(hook)
    if frozen:
        param.requires_grad_(False)
    return handle


def _common_dtype(name: str, held: list[Any], expected: str) -> str:
    """Return the dtype in which all ranks send a weight's gradient; "" for a weight that no rank has any more."""
    if all(fact is None for fact in held):
        return ""
    first = next(fact for fact in held if fact is not None)
    for rank, fact in enumerate(held):
        if fact is None:
            raise ConfigError(
                f"parameter {name} is in the model of another rank and not of rank {rank}; add and remove the same "
                "weights on every rank, before the same step"
            )
        if fact[0] != first[0]:
            raise ConfigError(
                f"parameter {name} has shape {tuple(fact[0])} on rank {rank} and {tuple(first[0])} on another"
            )
    dtypes = sorted({fact[1] for fact in held if fact[1]})
    if len(dtypes) > 1:
        raise ConfigError(
            f"gradients of {name} are {' and '.join(dtypes)} on different ranks; use one dtype everywhere"
        )
    dtype = dtypes[0] if dtypes else expected
    if dtype not in ITEM_BYTES:
        raise ConfigError(f"parameter {name} has {dtype} gradients; they may be {', '.join(ITEM_BYTES)}")
    return str(dtype)


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()


def _count(*_: object) -> None:
    Members._registrations += 1
