"""What scripts written for DistributedDataParallel do to the model: honoured, or said at once that it has no effect."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from ssfx.core.errors import ConfigError, near
from ssfx.runtime.uncopied_hooks import no_sync_of

_log = logging.getLogger("ssfx")
_ACCUMULATE = "require_backward_grad_sync"
_ANY_UNUSED = "parameters without a gradient are always allowed"
ARGUMENTS = {
    "find_unused_parameters": _ANY_UNUSED,
    "static_graph": _ANY_UNUSED,
    "device_ids": "the exchange is on the parameters' device",
    "output_device": "the exchange is on the parameters' device",
    "dim": "the batch is split by the script",
    "init_sync": "parameters and buffers are always made equal when attaching",
    "bucket_cap_mb": "scheme=ddp has bucket_cap_bytes, other schemes group gradients themselves",
    "gradient_as_bucket_view": "gradients have memory of their own",
    "device_mesh": "give the ranks as process_group",
    "mixed_precision": "use torch.autocast",
}
"""Arguments of DistributedDataParallel that `attach` does not have, and what holds instead."""
_OTHERS = {
    **dict.fromkeys(
        ("accumulate", "accumulation_steps", "gradient_accumulation_steps", "accumulate_grad_batches"),
        "run all but the last backward under sync.no_sync(), as with DDP",
    ),
    **dict.fromkeys(("clip_norm", "max_grad_norm", "clip"), "clip between backward and optimizer.step, as with DDP"),
    **dict.fromkeys(("cluster", "iteration_ms"), "it is a key of ssfx advise; attach measures where it runs"),
    **dict.fromkeys(("error_feedback", "residual"), 'it is memory="residual", the default, or memory="none"'),
}
"""Arguments that people expect, and what to do."""
_OWN = ("scheme", "compressor", "density", "memory", "scaler", "process_group", "costs", "profile", "exempt")
_KINDS = {
    "compressor": 'text, as "topk" or "dgc(value_dtype=float16)"', "memory": 'text, as "residual"',
    "density": "the kept fraction, a number in (0, 1]", "scaler": "the torch.amp.GradScaler of the script",
    "costs": "an ssfx Costs, as sync.planner measures, no name of a cluster; leave it out to measure",
    "profile": 'an ssfx Profile, as Profile.from_json(Path("mine.json").read_text())',
    "comm": "that of virtual_ranks", "seed": "a whole number",
}  # fmt: skip
_ATTRIBUTES = ("require_forward_param_sync", "broadcast_buffers", "find_unused_parameters", "static_graph", "reducer")


def check_kinds(given: Mapping[str, tuple[Any, Any]]) -> None:
    """Raise ConfigError for the first argument of `attach` that is of another kind: (value, type) by name."""
    for name, (value, kind) in given.items():
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ConfigError(f"{name} is {_KINDS[name]}; got {type(value).__name__} {value!r:.60}")


def check_arguments(options: Iterable[str]) -> None:
    """Raise ConfigError for an argument of DistributedDataParallel among the options of a scheme."""
    for name in options:
        if name in _OTHERS:
            raise ConfigError(f"attach has no argument {name}; {_OTHERS[name]}")
        if (close := near(name, _OWN)) and len(close) == 1:
            raise ConfigError(f"attach has no argument {name}; did you mean {close[0]}?")
        if name in ARGUMENTS:
            raise ConfigError(
                f"{name} is an argument of DistributedDataParallel, not of attach; drop it: {ARGUMENTS[name]}"
            )


class DdpHabits:
    """Gives the bare model DDP's `no_sync`, reads its `require_backward_grad_sync`, and notices the rest.

    Nothing is called `module`: a model that is its own `module` would send scripts that unwrap models round for ever.
    """

    def __init__(self, model: torch.nn.Module, no_sync: Callable[[], Any]) -> None:
        bare: torch.nn.Module = getattr(model, "_orig_mod", model)  # where torch.compile's wrapper puts attributes
        self._attributes = bare.__dict__
        self._added = not hasattr(bare, "no_sync")
        if self._added:
            self._attributes["no_sync"] = no_sync_of(no_sync)
        self._seen = set(self._attributes)

    @property
    def accumulates(self) -> bool:
        """True while the script has set `require_backward_grad_sync` to False, as inside `no_sync`."""
        return not self._attributes.get(_ACCUMULATE, True)

    def look(self) -> None:
        """Log a line for every attribute of DDP that was set since and has no effect."""
        if len(self._attributes) == len(self._seen):
            return
        for name in _ATTRIBUTES:
            if name in self._attributes and name not in self._seen:
                _log.warning(
                    "model.%s was set, an attribute of DistributedDataParallel that has no effect on a model with ssfx "
                    "attached (docs/attach.md, what else changes in your script)",
                    name,
                )
        self._seen = set(self._attributes)

    def close(self) -> None:
        """Take `no_sync` off the model."""
        if self._added:
            self._attributes.pop("no_sync", None)
            self._added = False
