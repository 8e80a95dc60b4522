"""What people call schemes, and what to write: one table for the command line and for `ssfx.attach`."""

from dataclasses import fields
from shlex import quote
from typing import Any

from ssfx.compressors import compressors
from ssfx.core.errors import ConfigError, near, plain, unknown
from ssfx.core.spec import Spec, name_of
from ssfx.schemes.base import schemes

_FOUR_BITS = "qsgd(bits=4,bucket=32,norm=max)"
_MEANT = {
    "ssfusion": {"scheme": "ssfusion_oi"},
    "dense torch allreduce none fp32 ddp_fp32 horovod nccl baseline": {"scheme": "ddp"},
    "best default fastest": {"scheme": "auto"},
    "fp16 16bit half fp16_allreduce fp16_compress": {"scheme": "ddp_fp16"},
    "bf16 bf16_allreduce bf16_compress": {"scheme": "ddp_bf16"},
    "int8 fp8 8bit ddp_int8 ddp_fp8 mxfp8 quantized quantization": {"scheme": "ddp_quantized"},
    "int4 4bit ddp_int4 mxfp4 nvfp4": {"scheme": "ddp_quantized", "compressor": _FOUR_BITS},
    "1bit": {"scheme": "ddp_quantized", "compressor": "onebit"},
    "fsdp fsdp2 hsdp zero zero1 zero2 zero3 zero++ zeropp": {"sharding": "hsdp"},
    "sparse sparsification": {"scheme": "topk"},
    "low_rank": {"scheme": "powersgd"},
    "localsgd": {"scheme": "local_sgd"},
}
_NEAR = {
    "1bit_adam onebit_adam 1bit_lamb 01_adam": {"scheme": "ddp_quantized", "compressor": "onebit"},
    "post_local_sgd fedavg": {"scheme": "local_sgd"},
    "opendiloco": {"scheme": "diloco"},
    "batched_powersgd dion": {"scheme": "powersgd"},
    "bytescheduler byteps p3 tictac": {"scheme": "wfbp"},
}
"""Methods that are others, and the nearest here."""
OTHER_WORDS = {plain(word): what for words, what in {**_MEANT, **_NEAR}.items() for word in words.split()}
_OF_OTHER_KINDS = {
    "muon adam adamw sgd lion lamb lars shampoo soap adafactor": (
        "an optimizer, no exchange; optimizer=NAME stands beside scheme=ddp"
    ),
    "pipeline gpipe pp tp ep megatron tensor_parallel expert_parallel sequence_parallel": (
        "no exchange of gradients, which are all that ssfx compresses; write scheme=ddp"
    ),
}
OF_OTHER_KINDS = {plain(word): what for words, what in _OF_OTHER_KINDS.items() for word in words.split()}
_NEAREST = (
    "ddp_fp16, ddp_quantized of fewer bits, topk, ssfusion_oi of few elements, powersgd of low rank, diloco of few "
    "exchanges, auto, which chooses"
)


def no_scheme(name: Any, *, python: bool = False) -> ConfigError:
    """Return the error for a scheme that is none, with what to write on a command line or, `python`, in a script."""
    if isinstance(name, (list, tuple)):
        return ConfigError(
            f"attach takes one scheme, got {name!r}; ssfx simulate scheme={','.join(map(str, name))} compares"
        )
    bare = name_of(name) if isinstance(name, str) else name
    inside = dict(Spec.parse(name).options) if isinstance(name, str) and bare != name else {}
    said = plain(str(bare))
    if meant := OTHER_WORDS.get(said, OTHER_WORDS.get(said.removesuffix("hook"))):
        if python and "sharding" in meant:
            return ConfigError(f"scheme={name!r}: attach takes a model that fully_shard has wrapped; wrap it first")
        near_by = "nearest by what is sent: " if meant in _NEAR.values() else ""
        return ConfigError(f"unknown scheme {name!r}; {near_by}write {_written(meant, python)}")
    if numbered := compressors.numbered(str(bare)):
        base = name_of(numbered["compressor"])
        if base in schemes and base == numbered["compressor"]:
            del numbered["compressor"]  # the scheme's own
        meant = {"scheme": base if base in schemes else "per_tensor"} | numbered
        return ConfigError(f"unknown scheme {name!r}; write {_written(meant, python)}")
    if bare in schemes and inside:
        beside = {"scheme": bare}
        own = {one.name for one in fields(schemes[bare].defaults)}
        beside |= {"compressor": name} if bare in compressors and not own & set(inside) else inside
        return ConfigError(f"scheme={name!r}: options stand beside a scheme; write {_written(beside, python)}")
    if bare in compressors:
        written = _written({"scheme": "per_tensor", "compressor": name}, python)
        return ConfigError(f"scheme={name}: {bare} is a compressor; write {written}")
    if meant_by := next((spec for word, spec in compressors.others.items() if plain(word) == said), ""):
        written = _written({"scheme": "per_tensor", "compressor": meant_by}, python)
        return ConfigError(f"unknown scheme {name!r}; nearest by what is sent: write {written}")
    if what := OF_OTHER_KINDS.get(said):
        return ConfigError(f"unknown scheme {name!r}: it is {what}")
    close = near(str(bare), [*schemes.names(), *compressors.names()])[:1]
    if close and close[0] not in schemes:
        written = _written({"scheme": "per_tensor", "compressor": close[0]}, python)
        return ConfigError(f"unknown scheme {name!r}; nearest by what is sent: write {written}")
    return unknown("scheme", str(name), schemes.names(), nearest_of=_NEAREST)


def _written(options: dict[str, str], python: bool) -> str:
    if not python:
        return " ".join(quote(f"{key}={value}") for key, value in options.items())
    numbers = {key: value if value.replace(".", "", 1).isdigit() else f'"{value}"' for key, value in options.items()}
    return ", ".join(f"{key}={value}" for key, value in numbers.items())
