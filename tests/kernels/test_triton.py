"""The CUDA kernels compared with plain torch, in Triton's interpreter and on a GPU, and compiled for real devices.

The interpreter has to be chosen before Triton is imported, so those cases run in a process of their own.
"""

import inspect
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource

from ssfx.compressors import build
from ssfx.compressors.kernels import COPY, DGC, READY, RESIDUAL, kernels, plain_torch
from ssfx.compressors.kernels.cpu import backend as cpu
from ssfx.compressors.kernels.reference import backend as reference
from ssfx.compressors.kernels.triton import backend as cuda
from ssfx.compressors.kernels.triton import codes, quantize, statistics
from ssfx.compressors.kernels.triton import compact as compaction
from ssfx.compressors.kernels.triton import select as selection
from ssfx.compressors.quantizer import coding_of

pytestmark = pytest.mark.slow  # half a minute in the interpreter

HERE = Path(__file__).parent
TYPES = {
    **dict.fromkeys(("blocks", "segments", "state", "histogram", "before", "counts", "indices", "spans"), "*i32"),
    **dict.fromkeys(("new", "old", "new_momentum", "old_momentum", "vector", "momentum", "values"), "*fp32"),
    **dict.fromkeys(("thresholds", "partial", "out", "sure", "possible"), "*fp64"),
    **dict.fromkeys(("step", "base", "num_blocks"), "i32"),
    **dict.fromkeys(("decay", "gain"), "fp32"),
    **dict.fromkeys(("sources", "skip"), "*i64"),
    **dict.fromkeys(("seed", "n"), "i64"),
    **dict.fromkeys(("rank", "count", "row_bytes", "codes_at"), "i32"),
    **dict.fromkeys(("unit", "sum_unit"), "fp32"),
    **dict.fromkeys(("codes", "rows"), "*u8"),
    "scales": "*fp32",
    "table": "*i64",
}
TILE = {"TILE": 1024}
FORMS = (COPY, RESIDUAL, DGC)
SEARCH, GIVEN = {"GIVEN": False, "thresholds": None}, {"GIVEN": True}
LATER = {"FIRST": False, "thresholds": None}
VARIANTS: list[tuple[Any, dict[str, Any]]] = []
for bits in (selection.WIDE, selection.NARROW):
    first, second, *_, last = selection.digits(bits)
    VARIANTS += [
        *((selection.accumulate_and_count, {"FORM": form, **SEARCH, **first}) for form in FORMS),
        *((selection.count_digits, one) for one in ({"FIRST": True, **first}, LATER | last)),
        *((selection.narrow, {"FIRST": True, "ROTATE": given["GIVEN"], **given, **first}) for given in (SEARCH, GIVEN)),
        *((selection.narrow, {"ROTATE": False, **SEARCH, **LATER, **digit}) for digit in (second, last)),
    ]
first, *_ = selection.digits(selection.WIDE)  # where nothing is counted, digits do not matter
VARIANTS += [
    *((selection.accumulate_and_count, {"FORM": form, **GIVEN, **first}) for form in FORMS),
    (selection.accumulate_and_count, {"FORM": READY, **SEARCH, **first, "sources": None}),
    (compaction.band, {}),
    (compaction.count_chosen, {"ROTATE": True}),
    (compaction.offsets, TILE),
    (compaction.write, {"ROTATE": True, "CLEAR": True, "MASK": True}),
    (statistics.moments, {"FORM": DGC}),
    (statistics.tails, {"SUMS": True}),
    (statistics.add_up, {"COLUMNS": 5, "LAST": statistics.LARGEST.value, **TILE}),
    (statistics.add_up, {"COLUMNS": 4, "LAST": statistics.SMALLEST.value, **TILE}),
    (statistics.add_up, {"COLUMNS": 1, "LAST": statistics.SUM.value, **TILE}),
]
for spec in (
    "qsgd(bits=4,bucket=48,norm=max)",
    "qsgd(bits=4,bucket=32,norm=max,rotate=32)",
    "qsgd",
    "fp8",
    "onebit(bucket=1024)",
):
    coding = coding_of(build(spec))
    assert coding is not None
    fixed = quantize.constants(coding)
    VARIANTS += [
        (codes.encode, fixed | quantize.rounding(coding) | {"ROWS": True, "TAKES": True}),
        (codes.add, fixed | {"FRESH": True}),
    ]


@pytest.mark.slow
def test_the_kernels_equal_plain_torch_in_the_interpreter() -> None:
    assert "skipped" not in cases("1", "triton_cases.py")


@pytest.mark.slow
def test_the_quantisers_equal_plain_torch_and_numba_in_the_interpreter() -> None:
    assert "skipped" not in cases("1", "quantize_cases.py")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_kernels_equal_plain_torch_on_a_gpu() -> None:
    assert "skipped" not in cases("0", "quantize_cases.py")
    assert "10 skipped" in cases("0", "triton_cases.py"), "what counts launches is for the interpreter"


def cases(interpret: str, file: str) -> str:
    """Return what pytest printed of a file of cases, all of which passed."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(HERE / file)]
    environment = os.environ | {"TRITON_INTERPRET": interpret}
    done = subprocess.run(command, env=environment, cwd=HERE.parent.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return done.stdout


TARGETS = (75, 80, 89, 90, 100, 120)
"""Compute capabilities: T4, A100, L4 and RTX 4090, H100, B200, RTX 5090."""
REGISTERS_OF_A_MULTIPROCESSOR = 65536
BUDGET = HERE / "kernel_budget.csv"
"""Registers of a thread by kernel and target, as Triton's own assembler counts them; a change is a diff one reads.

To write it again: `python tests/kernels/test_triton.py`, from the root of the repository.
"""


def options_of(kernel: Any, constants: dict[str, Any]) -> dict[str, Any]:
    if kernel is selection.narrow:
        return cuda._narrow_options(constants["BINS"])
    if kernel in (codes.encode, codes.add):
        return quantize.OPTIONS
    return cuda._WRITE_OPTIONS if kernel is compaction.write else cuda._OPTIONS


def compiled(kernel: Any, constants: dict[str, Any], capability: int) -> tuple[int, int]:
    """Return registers of a thread and bytes spilled, of a kernel compiled for a device that need not be here."""
    names = [parameter.name for parameter in kernel.params]
    signature = {name: "constexpr" if name in constants else TYPES[name] for name in names}
    made = triton.compile(
        ASTSource(kernel, signature, constants),
        target=GPUTarget("cuda", capability, 32),
        options=options_of(kernel, constants),
    )
    assert made.asm["cubin"]
    target = re.search(r"\.target (\w+)", made.asm["ptx"])
    assert target is not None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(made.asm["ptx"])
        command = [
            get_ptxas(capability).path,
            "-v",
            f"--gpu-name={target[1]}",
            str(source),
            "-o",
            str(Path(folder) / "kernel.cubin"),
        ]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers, spilled = re.search(r"Used (\d+) registers", said), re.search(r"(\d+) bytes spill stores", said)
    assert registers is not None, said
    assert spilled is not None, said
    return int(registers[1]), int(spilled[1])


def label(kernel: Any, constants: dict[str, Any]) -> str:
    return " ".join([kernel.__name__, *(f"{key}={value}" for key, value in constants.items() if value is not None)])


@pytest.mark.parametrize(("kernel", "constants"), VARIANTS, ids=lambda value: getattr(value, "__name__", None))
def test_the_kernels_compile_for_every_device_within_their_registers(
    kernel: Any, constants: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    header, *rows = [line.split(",") for line in BUDGET.read_text().splitlines()]
    budget = {row[0]: [int(cell) for cell in row[1:]] for row in rows}[label(kernel, constants)]
    used = {capability: compiled(kernel, constants, capability) for capability in TARGETS}
    assert [spilled for _, spilled in used.values()] == [0] * len(TARGETS)
    threads = 32 * options_of(kernel, constants)["num_warps"]
    programs = 2 if kernel is compaction.write else 1
    assert programs * max(registers for registers, _ in used.values()) * threads <= REGISTERS_OF_A_MULTIPROCESSOR
    if header[0] == f"triton {triton.__version__}":  # another version counts otherwise
        assert [registers for registers, _ in used.values()] == budget


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
        for module in (selection, compaction, statistics, codes)
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


if __name__ == "__main__":
    lines = [",".join([f"triton {triton.__version__}", *(f"sm_{capability}" for capability in TARGETS)])]
    for one, fixed in VARIANTS:
        counts = [str(compiled(one, fixed, capability)[0]) for capability in TARGETS]
        lines.append(",".join([label(one, fixed), *counts]))
    BUDGET.write_text("\n".join(lines) + "\n")
