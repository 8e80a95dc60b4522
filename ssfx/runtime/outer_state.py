"""What a state of rounds must be before any of it is loaded: of this rank, its options, its model and its weights."""

from collections.abc import Mapping
from typing import Any

import torch

from ssfx.core.errors import ConfigError
from ssfx.runtime.parted import fingerprint_of

_MINE = "after attach load this rank's own model and optimizer, saved outside of sync.outer(), then its state"


def check_state(state: Any, mine: Mapping[str, Any], params: Mapping[str, torch.Tensor]) -> None:
    """Raise ConfigError unless `state` was saved under the identity `mine`, with `params` having these very numbers."""
    if not isinstance(state, Mapping) or not {*mine, "outer", "weights", "counts", "sent_at"} <= state.keys():
        raise ConfigError("this is no state of rounds: load what sync.state_dict() returned on this rank")
    for key, value in mine.items():
        if state[key] != value:
            raise ConfigError(f"this state was saved with {key}={state[key]}, not {value}; resume with the same {key}")
    if {name: one.shape for name, one in state["outer"].items()} != {name: p.shape for name, p in params.items()}:
        raise ConfigError("this state was saved for another model: parameter names or shapes differ")
    if state["weights"] != int(fingerprint_of(params.values())):
        raise ConfigError(f"the model is not the one that rank {mine['rank']} had when this was saved: {_MINE}")
