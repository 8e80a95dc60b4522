"""The three kernel modules offer the same functions, so that a compressor works wherever its tensors are."""

import inspect
from importlib import metadata
from types import ModuleType

import pytest
import torch

import ssfx.compressors.kernels
from ssfx.compressors.kernels import kernels, plain_torch
from ssfx.compressors.kernels.cpu import backend as cpu
from ssfx.compressors.kernels.reference import backend as reference
from ssfx.compressors.kernels.triton import backend as cuda

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def functions(module: ModuleType) -> dict[str, list[str]]:
    """Return the parameters of every public function of a module, also those that it passes on."""
    found = inspect.getmembers(module, inspect.isfunction)
    passed_on = ("block_norms", "take_blocks", "largest_of_chunks")
    return {
        name: list(inspect.signature(function).parameters)
        for name, function in found
        if not name.startswith("_") and (function.__module__ == module.__name__ or name in passed_on)
    }


@pytest.mark.parametrize("module", [cpu, cuda])
def test_same_functions_as_the_oracle(module: ModuleType) -> None:
    own_tools = {"magnitude_bits", "largest"}
    expected = {name: given for name, given in functions(reference).items() if name not in own_tools}
    assert functions(module) == expected


def test_the_module_follows_the_device_and_the_oracle_is_there_on_request() -> None:
    assert kernels(CPU) is cpu
    assert kernels(CUDA) is cuda
    assert kernels(torch.device("meta")) is reference
    with plain_torch():
        assert kernels(CPU) is kernels(CUDA) is reference
    assert kernels(CPU) is cpu


@pytest.mark.parametrize(("version", "module"), [("3.3.1", reference), ("3.4.0", cuda), (None, reference)])
def test_a_triton_that_is_too_old_is_not_used(
    version: str | None, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def installed(name: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", installed)
    ssfx.compressors.kernels._triton_works.cache_clear()
    try:
        assert kernels(CUDA) is module
    finally:
        ssfx.compressors.kernels._triton_works.cache_clear()
