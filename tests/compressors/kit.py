"""What the compressor and memory tests share: golden cases, one call in and out, and input vectors."""

import functools
import json
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st

from ssfx.compressors import Compressor, Context, Payload, build

torch.set_num_threads(1)

SPARSIFIERS = (
    "topk",
    "topk(value_dtype=float16)",
    "topk(value_dtype=bfloat16)",
    "randomk",
    "randomk(value_dtype=bfloat16)",
    "dgc",
    "dgc(value_dtype=float16)",
    "dgc(mode=faithful)",
    "gaussiank",
    "gaussiank(value_dtype=float16)",
    "redsync",
    "sidco",
    "hard_threshold",
    "mstopk",
)
SILENT_AT_TIMES = ("random", "sidco", "hard_threshold")
"""How specs begin that may send zeros only: positions are random, or take turns where nothing is large."""
CASTS = ("fp16", "bf16")


@functools.cache
def _cases() -> dict[str, dict[str, Any]]:
    path = Path(__file__).parent.parent / "data" / "golden_codecs.json"
    return {case["id"]: case for case in json.loads(path.read_text())["cases"]}


def golden(name: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return (inputs, params, expected) of a golden case."""
    case = _cases()[name]
    return case["inputs"], case["params"], case["expected"]


def context(density: float = 1.0, **changes: int) -> Context:
    values: dict[str, int] = {"step": 0, "tensor_id": 0, "rank": 0, "world_size": 1, "seed": 0, **changes}
    return Context(density=density, **values)


def encode(compressor: Compressor | str, a: torch.Tensor, density: float, **changes: int) -> tuple[Payload, Context]:
    """Compress `a` into a payload of exactly the planned layout that held garbage before."""
    compressor = build(compressor) if isinstance(compressor, str) else compressor
    layout = compressor.layout(a.numel(), density)
    payload, ctx = Payload.allocate(layout), context(density, **changes)
    for section in (payload.counts, payload.indices, payload.values):
        section.fill_(77)
    shapes = compressor.state_shapes([(a.numel(),)])
    ctx.state.update({name: torch.zeros(shape) for name, shape in shapes.items()})
    before = a.clone()
    compressor.compress(a, payload, ctx)
    assert torch.equal(a, before), "compress must leave its input unchanged"
    assert payload.nbytes == layout.nbytes
    return payload, ctx


def decode(compressor: Compressor | str, payload: Payload, ctx: Context, numel: int) -> torch.Tensor:
    """Return the dense vector that a receiver of `payload` alone reconstructs."""
    compressor = build(compressor) if isinstance(compressor, str) else compressor
    out = torch.zeros(numel)
    compressor.decompress_add(payload, out, ctx)
    return out


def payload_bytes(payload: Payload) -> bytes:
    """Return the sections in wire order."""
    sections = (payload.counts, payload.scales, payload.indices, payload.values, payload.codes)
    return b"".join(section.contiguous().view(torch.uint8).numpy().tobytes() for section in sections)


def shapes_of_data(numel: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return vectors that break naive compressors, by name."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(numel, generator=generator)
    uniform = torch.rand(numel, generator=generator)
    one_hot = torch.zeros(numel)
    one_hot[numel // 2] = -3.0
    mostly_zero = normal * (uniform < 0.002)
    return {
        "normal": normal,
        "heavy tail": normal / uniform.clamp(min=1e-3),
        "one hot": one_hot,
        "zeros": torch.zeros(numel),
        "negative zeros": torch.full((numel,), -0.0),
        "constant": torch.full((numel,), 0.25),
        "two magnitudes": torch.where(uniform < 0.5, 1.0, -1.0),
        "all negative": -normal.abs() - 1,
        "mostly zero": mostly_zero,
        "denormal": normal * 1e-38 * 1e-3,
        "huge": normal * 1e30,
        "few levels": (normal * 2).round(),
        "sorted": normal.sort().values,
        "one dense row": torch.where(torch.arange(numel) // 64 == numel // 128, normal, 0.0),
    }


NUMELS = (1, 2, 31, 32, 33, 1000)


@st.composite
def vectors(draw: st.DrawFn) -> torch.Tensor:
    """Draw a float32 vector of up to 3000 elements with ties, zeros and magnitudes from denormal to huge."""
    numel = draw(st.integers(1, 64) | st.integers(1, 3000))
    seed = draw(st.integers(0, 2**31))
    scale = draw(st.sampled_from([1.0, 1e-3, 1e-42, 1e30]))
    levels = draw(st.sampled_from([0, 1, 3, 50]))
    values = torch.randn(numel, generator=torch.Generator().manual_seed(seed))
    return (values * levels).round() * scale if levels else values * scale


densities = st.sampled_from([0.001, 0.01, 0.05, 0.29, 0.5, 1.0]) | st.floats(1e-4, 1.0)
