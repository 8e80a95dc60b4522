"""Count what a call of every compressor issues and moves, on the path of a GPU and on that of the host; no clock.

    python benchmarks/count_operators.py [NAME ...] [--write] [--fused]

Torch runs on the CPU here, and every operator that is not a view is counted with the bytes of its inputs and outputs.
Triton kernels count as many launches and bytes as docs/kernels.md says. With --fused quantisers run on their Triton
kernels, and without it in plain torch, as the codes of papers do. The result is the table from which
ssfx/perf_model/compressor_times.py makes nominal times; a test counts again.
"""

import argparse
import importlib
import json
import pkgutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console
from rich.progress import track
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import ssfx.compressors
from ssfx.compressors import Compressor, Context, build, cast, compressors, threshold
from ssfx.compressors.blank import blank_batch, run
from ssfx.compressors.count_cost import DENSITY, SIDE, SORT_BYTES, VIEWS
from ssfx.compressors.kernels.cpu import backend as cpu
from ssfx.compressors.kernels.cpu import quantize
from ssfx.compressors.kernels.reference import blocks as plain_blocks
from ssfx.compressors.kernels.reference import pack as pack_reference
from ssfx.compressors.memories import memories
from ssfx.core.files import write_json
from ssfx.core.paths import data_dir

SECTOR_BYTES = 32
"""What a GPU moves for one element at a random place."""
READS = {"gather", "index", "index_select", "take"}
WRITES = {"index_add_", "index_copy_", "index_put_", "scatter_", "scatter_add_"}
GPU, HOST = "device", "host"


class Counter(TorchDispatchMode):
    """`calls` issued, `launches` by Python among them, `nbytes` moved outside of matrix products, bytes of every
    `product`, and columns of `bases`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.launches, self.bases = 0, 0, 0
        self.nbytes, self.products = 0.0, []  # type: float, list[float]
        self._silent = False

    def kernel(self, calls: int, nbytes: float) -> None:
        """Count one function of the compiled kernels; on a GPU each call is a launch by Python."""
        self.calls += calls
        self.launches += calls
        self.nbytes += nbytes

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Inside the block nothing is counted."""
        before, self._silent = self._silent, True
        try:
            yield
        finally:
            self._silent = before

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = operator(*args, **(kwargs or {}))
        name = operator.overloadpacket.__name__
        if self._silent or name in VIEWS:
            return out
        inputs = [one for one in tree_leaves(args) if isinstance(one, torch.Tensor)]
        outputs = [one for one in tree_leaves(out) if isinstance(one, torch.Tensor)]
        if name in ("copy_", "zero_", "fill_"):
            inputs = inputs[1:]  # what is overwritten is not read
        self.calls += 1
        nbytes = float(sum(one.numel() * one.element_size() for one in (*inputs, *outputs)))
        if name in ("mm", "addmm_"):
            self.products.append(nbytes)
        elif name == "linalg_qr":
            self.bases += outputs[0].shape[1]
        elif name in READS | WRITES:
            places = [one for one in inputs[1:] if one.dtype in (torch.int32, torch.int64)]
            each = sum(one.element_size() for one in places) + 4 + SECTOR_BYTES * (2 if name in WRITES else 1)
            self.nbytes += each * max(one.numel() for one in places)
        elif name in ("sort", "argsort"):
            self.nbytes += SORT_BYTES * inputs[0].numel()
        else:
            self.nbytes += nbytes
        return out


def stand_in(counter: Counter, path: str) -> ModuleType:
    """Return the kernels of `path`: they do what those of the CPU do, and are counted as what they are.

    Launches and passes of the CUDA kernels: docs/kernels.md. On the host every function is one call; it looks at a
    gradient while it accumulates it, in one pass. Gradients that are pending cost 12 bytes to accumulate, else the
    vector is read.
    """
    gpu = path == GPU
    module = ModuleType(path)

    def first(batch: Any) -> tuple[int, float]:
        pending = any(grad is not None for grad in batch.grads)
        return (int(pending) if gpu else 0), batch.vector.numel() * (12.0 if pending and batch.memory else 4.0)

    def counted(name: str, launches: int, passes: float) -> None:
        kernel = getattr(cpu, name)

        def work(batch: Any, *args: Any, **kwargs: Any) -> Any:
            copies, nbytes = first(batch) if name in ("select", "moments") else (0, 4.0 * batch.vector.numel())
            later = 4.0 * batch.vector.numel() * passes if gpu else 0.0
            if gpu and name == "select" and len(args) < 2:  # an exact choice looks at two more digits
                later += 8.0 * batch.vector.numel()
            counter.kernel(launches + copies if gpu else 1, nbytes + later)
            with counter.silent():
                return kernel(batch, *args, **kwargs)

        setattr(module, name, work)

    for name, launches, passes in (
        ("select", 10, 2.0),
        ("moments", 2, 0.0),
        ("count", 2, 0.0),
        ("tail", 2, 0.0),
        ("select_band", 4, 1.0),
    ):
        counted(name, launches, passes)

    for name in ("block_norms", "take_blocks", "largest_of_chunks"):
        setattr(module, name, getattr(plain_blocks, name) if gpu else one_call(counter, getattr(cpu, name)))
    return module


def one_call(counter: Counter, kernel: Any) -> Any:
    """Return the compiled function, counted as one call that reads what it is given."""

    def work(first: Any, *args: Any, **kwargs: Any) -> Any:
        vector = getattr(first, "vector", None)
        pending = vector is not None and first.memory is not None and any(grad is not None for grad in first.grads)
        largest = max(
            one.numel() * one.element_size()
            for one in tree_leaves((first, *args, vector, getattr(first, "codes", None)))
            if isinstance(one, torch.Tensor)
        )
        counter.kernel(1, largest * (3.0 if pending else 1.0))
        with counter.silent():
            return kernel(first, *args, **kwargs)

    return work


def fused(counter: Counter) -> ModuleType:
    """Return the quantisers of CUDA: a call is a launch, which moves its payload once, and the vector as follows.

    Encoding reads a vector; what is left, or a sum that something is added to, is read and written.
    """
    module = ModuleType("fused quantizers")
    vars(module).update({name: getattr(pack_reference, name) for name in ("signs", "scaled_signs", "add_signs")})

    def encode(batch: Any, coding: Any, rows: Any = None, *, takes: bool = False) -> None:
        batch.accumulate()
        of = rows.data.numel() if rows is not None else 4 * batch.vector.numel()
        kept = 4.0 * batch.vector.numel() * takes * (2 if rows is not None else 1)
        counter.kernel(1, of + kept + batch.payload.codes.numel() + 4 * batch.payload.scales.numel())
        with counter.silent():
            pack_reference.encode(batch, coding, rows, takes=takes)

    def add(payload: Any, coding: Any, out: Any, scale: float = 1.0) -> None:
        counter.kernel(1, payload.codes.numel() + 4.0 * payload.scales.numel() + 8 * out.numel())
        with counter.silent():
            pack_reference.add(payload, coding, out, scale)

    def add_rows(rows: Any, coding: Any, out: Any, *, fresh: bool = False) -> None:
        counter.kernel(1, rows.data.numel() + (4.0 if fresh else 8.0) * out.numel())
        with counter.silent():
            pack_reference.add_rows(rows, coding, out, fresh=fresh)

    vars(module).update(encode=encode, add=add, add_rows=add_rows)
    return module


FUSED = ("qsgd", "fp8", "onebit(bucket=1024)")
"""Compressors that a launch encodes on CUDA, as keys of costs/fused.json; none of them selects."""


@contextmanager
def counting(path: str, by_kernels: bool = False) -> Iterator[Counter]:
    """Count inside the block, as on `path`; formulas take as many rounds as where no device is asked."""
    counter = Counter()
    kernels = stand_in(counter, path)
    codes = fused(counter) if by_kernels else pack_reference
    if path == HOST:
        codes = ModuleType("host quantizers")
        for name in quantize.__all__:
            setattr(codes, name, one_call(counter, getattr(quantize, name)))
    settled = (lambda _active: False) if path == GPU else threshold.settled
    changes = {"kernels": lambda _device: kernels, "quantizers": lambda _device: codes, "settled": settled}
    if path == GPU:
        changes |= {"surely_within": lambda _exact, _bound: False, "count_cut": lambda _exact, _bound: None}
    with ExitStack() as stack:
        modules = [info.name for info in pkgutil.iter_modules(ssfx.compressors.__path__, "ssfx.compressors.")]
        for module in map(importlib.import_module, [*modules, "ssfx.compressors.kernels.narrow"]):
            for name, value in changes.items():
                if hasattr(module, name):
                    stack.enter_context(patch.object(module, name, value))
        stack.enter_context(patch.object(cast, "BLOCK", 1 << 62))  # pieces for the cache of a CPU
        yield stack.enter_context(counter)


def encoded(compressor: Compressor, path: str, segments: int, by_kernels: bool = False) -> Counter:
    """Return what one call for `segments` segments issues, accumulation and the update of the residual included."""
    keeper = memories.build("residual" if compressor.error_feedback and not compressor.lossless else "none")
    batch = blank_batch(compressor, [[(SIDE, SIDE)]] * segments, DENSITY, keeper)
    batch.world_size = 2
    noise = torch.randn(segments, SIDE * SIDE, generator=torch.Generator().manual_seed(0)).mul_(1e-3)
    counted = []
    for step in range(3):
        batch.step, batch.grads = step, list(noise.clone())
        with counting(path, by_kernels) as counter:
            run(batch, compressor)
        counted.append(counter)
    # The first step makes tables that later ones keep; where ranks take turns, the others wait for the one that works.
    return max(counted[1:], key=lambda counter: counter.calls)


def decoded(compressor: Compressor, path: str, by_kernels: bool = False) -> tuple[Counter, float]:
    """Return what adding one payload to the average issues, and its size: indices or, where it has none, elements."""
    batch = blank_batch(compressor, [[(SIDE, SIDE)]], DENSITY)
    batch.vector.normal_(std=1e-3, generator=torch.Generator().manual_seed(0))
    run(batch, compressor)
    out, ctx = torch.zeros(SIDE * SIDE), Context(0, 0, 0, 2, DENSITY, 0, ((SIDE, SIDE),), batch.states[0])
    with counting(path, by_kernels) as counter:
        if compressor.sparse:  # as runtime.packed_message does for a whole lane
            out.index_add_(0, batch.payload.indices, batch.payload.values.float().mul_(0.5))
        else:
            compressor.decompress_add(batch.payload, out, ctx, scale=0.5)
    return counter, float(batch.payload.indices.numel() or SIDE * SIDE)


def counts(name: str, by_kernels: bool = False) -> dict[str, Any]:
    """Return the row of one compressor: calls, and bytes by element (in decoding by index, where there are some).

    Whether it is additive and its default rank stand there too, so that its times are known without importing it.
    """
    compressor = build(name)
    row: dict[str, Any] = {}
    row["additive"], row["rank"] = compressor.additive, getattr(compressor.options, "rank", None)
    for path in (GPU, HOST):
        kernel = by_kernels and path == GPU
        one, two = encoded(compressor, path, 1, kernel), encoded(compressor, path, 2, kernel)
        decode, size = decoded(compressor, path, kernel)
        row[path] = {
            "calls": one.calls,
            "segment_calls": two.calls - one.calls,
            **moved(one, SIDE * SIDE, path),
            "decode": {"calls": decode.calls, **moved(decode, size, path)},
        }
    return row


def moved(counter: Counter, size: float, path: str) -> dict[str, Any]:
    """Return bytes by unit of `size`; products, bases and launches of Triton where there are some."""
    found: dict[str, Any] = {"nbytes": round(counter.nbytes / size, 1)}
    if counter.products:
        found["products"] = [round(one / size, 1) for one in counter.products]
    if counter.bases:
        found["bases"] = counter.bases
    if counter.launches and path == GPU:
        found["launches"] = counter.launches
    return found


def main() -> None:
    """Print the rows of the named compressors, or of all; or write them where compressor_times reads them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="default: all, five minutes")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--fused", action="store_true", help=f"{', '.join(FUSED)} by their CUDA kernels")
    asked = parser.parse_args()
    path, every = data_dir() / "costs" / "counted.json", compressors.names()
    if asked.fused:
        path, every = path.with_name("fused.json"), list(FUSED)
    table = json.loads(path.read_text()) if path.exists() else {}
    for name in track(asked.names or every, "counting", console=Console(stderr=True)):
        table[name] = counts(name, asked.fused)
    kept = [name for name in every if name in table]
    text = "{\n" + ",\n".join(f' "{name}": {json.dumps(table[name])}' for name in kept) + "\n}\n"
    if asked.write:
        write_json(path, text)
    else:
        print(text if not asked.names else "\n".join(f"{name}: {json.dumps(table[name])}" for name in asked.names))


if __name__ == "__main__":
    main()
