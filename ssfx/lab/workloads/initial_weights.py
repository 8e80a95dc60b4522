"""Weights that training starts from: a folder that `save_pretrained` of Hugging Face's transformers wrote."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssfx.core.errors import ConfigError, RunError
from ssfx.core.paths import weights_folder
from ssfx.lab.workloads.on_disk.base import digest_of

if TYPE_CHECKING:
    from torch import nn

CONFIG = "config.json"
WHOLE = ("model.safetensors", "pytorch_model.bin")
INDEX = "model.safetensors.index.json"
"""Names the files among which a large model is shared out."""
STRUCTURE = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
    "hidden_act",
    "activation_function",
    "image_size",
    "patch_size",
    "num_channels",
)
"""What a configuration says of a network's shape and function; the vocabulary is compared for itself."""


@cache
def named_weights(folder: Path) -> str:
    """Return "<name of the folder>#<16 hex digits of its content>", which identifies the weights in cases and rows.

    ConfigError, which names the files, when some are missing. Needs no torch.
    """
    if not folder.is_dir():
        raise ConfigError(f"model.path={folder} is no folder; name one that save_pretrained of transformers wrote")
    files = [folder / CONFIG, *_weight_files(folder)]
    if absent := [path.name for path in files if not path.is_file()]:
        raise ConfigError(f"model.path={folder} lacks {', '.join(absent)}")
    try:
        return f"{folder.name}#{digest_of(files, 'weights')}"
    except RunError as error:
        raise ConfigError(str(error)) from None


def _weight_files(folder: Path) -> list[Path]:
    if whole := [folder / name for name in WHOLE if (folder / name).exists()]:
        return whole[:1]
    if not (folder / INDEX).exists():
        raise ConfigError(f"model.path={folder} lacks the weights: {' or '.join((*WHOLE, INDEX))}")
    try:
        parts = json.loads((folder / INDEX).read_text())["weight_map"].values()
    except (ValueError, KeyError, AttributeError) as error:
        raise ConfigError(f"{folder / INDEX} cannot be read: {type(error).__name__} {error}") from None
    return [folder / INDEX, *(folder / name for name in sorted(set(parts)))]


def start_from(model: nn.Module, name: str) -> tuple[str, ...]:
    """Give `model` the weights called `name`, and return what people should know of it.

    Every tensor below the heads must be there and fit; a head that is not there, or has another shape, keeps random
    numbers. A vocabulary of the checkpoint may be smaller than the model's, which is padded. ConfigError, one line,
    for anything else, and when the folder no longer holds what the case was made with.
    """
    folder = weights_folder()
    if folder is None or named_weights(folder) != name:
        raise ConfigError(f"the run starts from the weights {name}, which are not in model.path={folder}")
    from ssfx.lab.workloads.nets.hugging_face import is_pretrained, pretrained

    network: Any = getattr(model, "network", model)  # a reader of spans wraps the one of transformers
    if not is_pretrained(network):
        raise ConfigError(f"model.path={folder} needs a model of transformers, not a {type(model).__name__}")
    try:
        raw = json.loads((folder / CONFIG).read_text())
    except ValueError as error:
        raise ConfigError(f"{folder / CONFIG} cannot be read: {error}") from None
    _check_structure(network.config, raw, folder)
    found, info = pretrained(network, folder)
    base = f"{network.base_model_prefix}."
    mismatched = [key for key, *_ in info["mismatched_keys"]]
    wrong = sorted(key for key in {*info["missing_keys"], *mismatched} if key.startswith(base))
    if wrong:
        raise ConfigError(
            f"the weights in model.path={folder} lack {len(wrong)} tensors of the model, or have them in another "
            f"shape, such as {wrong[0]}; use a checkpoint of the same architecture"
        )
    network.load_state_dict(found.state_dict())
    heads = sorted({*info["missing_keys"], *mismatched})
    notes = [f"starts from the weights {name}"]
    if heads:
        notes.append(f"not in {name}, so random: {', '.join(heads)}")
    if info["vocabulary"] != getattr(network.config, "vocab_size", None):
        notes.append(f"the vocabulary of {name} has {info['vocabulary']} tokens; the rest of the embedding is random")
    return tuple(notes)


def _check_structure(ours: Any, raw: dict[str, Any], folder: Path) -> None:
    """Raise ConfigError for the first thing that another network than `ours` would have; `raw` omits usual values."""
    theirs = type(ours).from_dict(raw)
    found = {"model_type": (raw.get("model_type"), ours.model_type)}
    found |= {key: (getattr(theirs, key, None), getattr(ours, key, None)) for key in STRUCTURE}
    has, wants = getattr(theirs, "vocab_size", None), getattr(ours, "vocab_size", None)
    if has is None or wants is None or has > wants:
        found["vocab_size"] = has, wants
    for key, (has, wants) in found.items():
        if has != wants:
            raise ConfigError(f"{folder / CONFIG} says {key}={has}, and the model has {wants}; the two do not fit")
