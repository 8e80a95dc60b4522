"""The CUDA kernels on the CPU: compared with plain torch in Triton's interpreter, and compiled for real devices.

The interpreter has to be chosen before Triton is imported, so those cases run in a process of their own.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ssfx.kernels import COPY, DGC, NESTEROV, READY, RESIDUAL, kernels, plain_torch
from ssfx.kernels.cpu import backend as cpu
from ssfx.kernels.reference import backend as reference
from ssfx.kernels.triton import backend as cuda
from ssfx.kernels.triton import compact as compaction
from ssfx.kernels.triton import select as selection
from ssfx.kernels.triton import statistics

pytestmark = pytest.mark.slow  # half a minute in the interpreter

HERE = Path(__file__).parent
TYPES = {
    **dict.fromkeys(("blocks", "segments", "state", "histogram", "before", "counts", "indices", "spans"), "*i32"),
    **dict.fromkeys(("new", "old", "new_momentum", "old_momentum", "vector", "momentum", "values"), "*fp32"),
    **dict.fromkeys(("thresholds", "partial", "out", "sure", "possible"), "*fp64"),
    **dict.fromkeys(("step", "base", "num_blocks"), "i32"),
    **dict.fromkeys(("decay", "gain"), "fp32"),
    **dict.fromkeys(("sources", "skip"), "*i64"),
}
TILE = {"TILE": 1024}
VARIANTS: list[tuple[Any, dict[str, Any]]] = [
    *((selection.accumulate_and_count, {"FORM": form, "GIVEN": True}) for form in (COPY, RESIDUAL, DGC, NESTEROV)),
    (selection.accumulate_and_count, {"FORM": READY, "GIVEN": False, "thresholds": None, "sources": None}),
    (selection.begin, {"GIVEN": False, "ROTATE": False, "thresholds": None}),
    (selection.begin, {"GIVEN": True, "ROTATE": True}),
    (selection.count_digits, {"SHIFT": selection.SHIFTS[-1]}),
    *((selection.narrow, {"SHIFT": shift}) for shift in selection.SHIFTS),
    (compaction.band, {}),
    (compaction.count_chosen, {"ROTATE": True}),
    (compaction.offsets, TILE),
    (compaction.write, {"ROTATE": True, "CLEAR": True, "MASK": True}),
    (statistics.moments, {"FORM": DGC}),
    (statistics.tails, {"SUMS": True}),
    (statistics.log_sums, {}),
    (statistics.add_up, {"COLUMNS": 5, "LAST": statistics.LARGEST.value, **TILE}),
    (statistics.add_up, {"COLUMNS": 4, "LAST": statistics.SMALLEST.value, **TILE}),
    (statistics.add_up, {"COLUMNS": 1, "LAST": statistics.SUM.value, **TILE}),
]


@pytest.mark.slow
def test_the_kernels_equal_plain_torch_in_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(HERE / "triton_cases.py")]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, cwd=HERE.parent.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout


@pytest.mark.parametrize(("kernel", "constants"), VARIANTS, ids=lambda value: getattr(value, "__name__", None))
def test_the_kernels_compile_for_a_device(
    kernel: Any, constants: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    names = [parameter.name for parameter in kernel.params]
    signature = {name: "constexpr" if name in constants else TYPES[name] for name in names}
    target = GPUTarget("cuda", 80, 32)
    made = triton.compile(ASTSource(kernel, signature, constants), target=target, options=cuda._OPTIONS)
    assert made.asm["cubin"]


def test_all_modules_offer_the_same_functions() -> None:
    offered = [
        {
            name: list(inspect.signature(function).parameters)
            for name, function in vars(module).items()
            if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
        }
        for module in (cuda, cpu)
    ]
    assert offered[0] == offered[1]
    for name, parameters in offered[0].items():
        assert list(inspect.signature(getattr(reference, name)).parameters) == parameters


@pytest.mark.parametrize(("device", "module"), [("cuda", cuda), ("cpu", cpu), ("meta", reference)])
def test_each_device_has_its_module(device: str, module: ModuleType) -> None:
    assert kernels(torch.device(device)) is module
    with plain_torch():
        assert kernels(torch.device(device)) is reference


def test_every_kernel_is_compiled_above() -> None:
    public = {
        name
        for module in (selection, compaction, statistics)
        for name, kernel in vars(module).items()
        if isinstance(kernel, triton.JITFunction) and kernel.__module__ == module.__name__ and not name.startswith("_")
    }
    assert public == {kernel.__name__ for kernel, _ in VARIANTS}


@pytest.mark.slow
def test_the_benchmark_says_that_there_is_no_gpu() -> None:
    command = [sys.executable, str(HERE.parent.parent / "benchmarks" / "gpu_kernels.py")]
    done = subprocess.run(command, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["no GPU here: benchmarks/gpu_kernels.py needs one that PyTorch can use"]
