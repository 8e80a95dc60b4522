"""The CUDA quantisers equal plain torch and numba in every bit; run by `test_triton.py` in processes of their own."""

import pytest
import torch
import triton
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ssfx.compressors import Layout, Payload, build
from ssfx.compressors.batch import Batch, Part, Starts
from ssfx.compressors.kernels import Coding, Rows
from ssfx.compressors.kernels.cpu import quantize as numba
from ssfx.compressors.kernels.reference import pack as reference
from ssfx.compressors.kernels.triton import quantize as cuda
from ssfx.compressors.quantizer import coding_of

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of what is not finite, as interpreted
DEVICE = torch.device("cpu" if triton.knobs.runtime.interpret else "cuda")
SPECS = (
    "qsgd",
    "qsgd(norm=max,nearest=True)",
    "qsgd(bits=4,bucket=48,norm=max)",
    "qsgd(bits=4,bucket=32,norm=max,rotate=64)",
    "qsgd(bits=2,bucket=64,rotate=16)",
    "qsgd(bits=4,bucket=48,norm=max,rotate=32)",
    "qsgd(bits=4,bucket=0)",
    "fp8",
    "onebit(bucket=1024)",
    "onebit(bucket=24)",
)
SPECIAL = st.sampled_from([0.0, -0.0, 1e-44, -1e-39, 3e38, float("nan"), float("inf")])


def drawn(numel: int, seed: int, special: list[float]) -> torch.Tensor:
    a = torch.randn(numel, generator=torch.Generator().manual_seed(seed))
    a *= 10 ** torch.randint(-6, 3, (numel,), generator=torch.Generator().manual_seed(seed))
    for number, value in enumerate(special):
        a[(number * 97) % numel] = value
    return a


def outcome(kernels, coding: Coding, spec: str, sizes: list[int], a: torch.Tensor, rows: bool, takes: bool):
    """Return scales, codes, what the vector is left with, and the decoded rows."""
    on, compressor = (DEVICE if kernels is cuda else torch.device("cpu")), build(spec)
    parts, lo, scale, code = [], 0, 0, 0
    for number, size in enumerate(sizes):
        layout = compressor.layout(size, 1.0)
        parts.append(Part(lo, lo + size, layout, 1.0, 7 + number, Starts(scales=scale, codes=code), ((lo, lo + size),)))
        lo, scale, code = lo + size, scale + layout.scales, code + layout.code_bytes
    payload = Payload.allocate(Layout(scales=scale, code_bytes=code), on)
    batch = Batch(tuple(parts), payload, {"a": a.clone().to(on)}, rank=3, seed=2**63 + 5, step=4)
    arrived = None
    if rows:
        arrived = made_rows(coding, spec, sizes[0], on)
    kernels.encode(batch, coding, arrived, takes=takes)
    out = a.clone().to(on)
    share = batch.share(parts[0])
    kernels.add(share, coding, out[: sizes[0]], -1 / 3)
    if arrived is not None:
        kernels.add_rows(arrived, coding, out[: sizes[0]])
        fresh = torch.full_like(out, 5.0)
        kernels.add_rows(arrived, coding, fresh, fresh=True)
        out = torch.cat([out, fresh])
    return [payload.scales, payload.codes, batch.vector, out]


def made_rows(coding: Coding, spec: str, size: int, on: torch.device) -> Rows:
    layout = build(spec).layout(size, 1.0)
    data = torch.zeros(3, -(-layout.nbytes // 4) * 4 + 4, dtype=torch.uint8)
    for number, row in enumerate(data):
        row[: 4 * layout.scales].view(torch.float32).copy_(torch.rand(layout.scales))
        a, behind = drawn(size, 100 + number, []), row[4 * layout.scales :]
        payload = Payload.allocate(layout, torch.device("cpu"))
        part = Part(0, size, layout, 1.0, pieces=((0, size),))
        reference.encode(Batch((part,), payload, {"a": a}), coding)
        row[: 4 * layout.scales].view(torch.float32).copy_(payload.scales)
        behind[: layout.code_bytes].copy_(payload.codes)
    return Rows(data.to(on), 4 * layout.scales)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("takes", [False, True])
@example(sizes=[52], seed=0, special=[0.0, 0.0, 3e38], rows=False)
@given(
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=3),
    seed=st.integers(0, 99),
    special=st.lists(SPECIAL, max_size=3),
    rows=st.booleans(),
)
@settings(max_examples=6, deadline=None)
def test_all_three_agree(spec: str, takes: bool, sizes: list[int], seed: int, special: list[float], rows: bool) -> None:
    coding = coding_of(build(spec))
    assert coding is not None
    sizes = sizes[:1] if rows else sizes
    a = drawn(sum(sizes), seed, special)
    plain, *others = (outcome(one, coding, spec, sizes, a, rows, takes) for one in (reference, numba, cuda))
    for other in others:
        for one, two in zip(plain, other, strict=True):
            assert torch.equal(one.nan_to_num(nan=7e7), two.cpu().nan_to_num(nan=7e7))


def test_what_a_tile_cannot_hold_is_left_to_plain_torch() -> None:
    held = {spec for spec in SPECS if coding_of(build(spec)).fits}  # type: ignore[union-attr]
    assert set(SPECS) - held == {"qsgd(bits=4,bucket=48,norm=max,rotate=32)", "qsgd(bits=4,bucket=0)"}
