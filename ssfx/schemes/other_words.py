"""What people call schemes, and what to write: one table for the command line and for `ssfx.attach`."""

from dataclasses import fields
from typing import Any

from ssfx.compressors import compressors
from ssfx.core.errors import ConfigError, unknown
from ssfx.core.spec import Spec, name_of
from ssfx.schemes.base import schemes

_FOUR_BITS = "qsgd(bits=4,bucket=32,norm=max)"
_MEANT = {
    "ssfusion": {"scheme": "ssfusion_oi"},
    "dense torch allreduce none": {"scheme": "ddp"},
    "best default fastest": {"scheme": "auto"},
    "fp16 16bit half fp16_allreduce fp16_compress_hook": {"scheme": "ddp_fp16"},
    "bf16 bf16_allreduce bf16_compress_hook": {"scheme": "ddp_bf16"},
    "int8 fp8 8bit ddp_int8 ddp_fp8": {"scheme": "ddp_quantized"},
    "int4 4bit ddp_int4": {"scheme": "ddp_quantized", "compressor": _FOUR_BITS},
    "1bit 1-bit 1bit_adam onebit_adam": {"scheme": "ddp_quantized", "compressor": "onebit"},
    "fsdp hsdp zero zero3 zero++ zeropp": {"sharding": "hsdp"},
    "local_sgd localsgd opendiloco": {"scheme": "diloco"},
}
OTHER_WORDS = {word: options for words, options in _MEANT.items() for word in words.split()}


def no_scheme(name: Any, *, python: bool = False) -> ConfigError:
    """Return the error for a scheme that is none, with what to write on a command line or, `python`, in a script."""
    if isinstance(name, (list, tuple)):
        return ConfigError(
            f"attach takes one scheme, got {name!r}; ssfx simulate scheme={','.join(map(str, name))} compares"
        )
    bare = name_of(name) if isinstance(name, str) else name
    inside = dict(Spec.parse(name).options) if isinstance(name, str) and bare != name else {}
    if meant := OTHER_WORDS.get(str(bare).lower()):
        if python and "sharding" in meant:
            return ConfigError(f"scheme={name!r}: attach takes a model that fully_shard has wrapped; wrap it first")
        return ConfigError(f"unknown scheme {name!r}; write {_written(meant, python)}")
    if bare in schemes and inside:
        beside = {"scheme": bare}
        own = {one.name for one in fields(schemes[bare].defaults)}
        beside |= {"compressor": name} if bare in compressors and not own & set(inside) else inside
        return ConfigError(f"scheme={name!r}: options stand beside a scheme; write {_written(beside, python)}")
    if bare in compressors:
        written = _written({"scheme": "per_tensor", "compressor": name}, python)
        return ConfigError(f"scheme={name}: {bare} is a compressor; write {written}")
    return unknown("scheme", name, schemes.names())


def _written(options: dict[str, str], python: bool) -> str:
    if not python:
        return " ".join(f"{key}={value}" for key, value in options.items())
    numbers = {key: value if value.replace(".", "", 1).isdigit() else f'"{value}"' for key, value in options.items()}
    return ", ".join(f"{key}={value}" for key, value in numbers.items())
