"""Golden cases that concern every compressor: k, keys, wire sizes, byte layout, casts."""

import math

import numpy as np
import pytest
import torch
from compressors.kit import decode, encode, golden, payload_bytes

from ssfx.compressors import Layout, build, k_ceil, k_floor
from ssfx.compressors.dgc import capacity
from ssfx.compressors.kernels.narrow import CUT, cut_values, narrow
from ssfx.wire.batch import splitmix64


def test_k_rule() -> None:
    inputs, _, expected = golden("k_rule")
    assert [k_floor(n, d) for n, d in inputs["n_density"]] == expected["floor"]
    assert [k_ceil(n, d) for n, d in inputs["n_density"]] == expected["ceil"]
    assert k_floor(0, 0.5) == k_ceil(0, 0.5) == 0


def test_splitmix64() -> None:
    inputs, _, expected = golden("splitmix64")
    assert [hex(splitmix64(int(z, 16))) for z in inputs["z"]] == expected["out"]


def test_wire_bytes() -> None:
    for row in golden("wire_bytes")[2]["rows"]:
        n, density, k = row["n"], row["density"], row["k"]

        def nbytes(spec: str, n: int = n, density: float = density) -> int:
            return build(spec).layout(n, density).nbytes

        assert Layout(values=n).nbytes == row["dense_f32"]
        assert nbytes("fp16") == nbytes("bf16") == row["dense_f16"]
        assert nbytes("topk") == row["topk_i32_f32"]
        assert nbytes("topk(value_dtype=float16)") == row["topk_i32_f16"]
        assert nbytes("randomk") == row["randomk_shared_f32"]
        slots = capacity(k, n, 1.3)
        assert Layout(counts=1, indices=slots, values=slots).nbytes == row["threshold_cap_1p3"]
        # DGC rounds k up (D-1), so its payload follows the same formula from k_ceil
        assert nbytes("dgc") == 4 + 8 * capacity(k_ceil(n, density), n, 1.3)
        assert nbytes("dgc(mode=faithful)") == 4 + 8 * k_ceil(n, density)


@pytest.mark.parametrize(("value_dtype", "key"), [("float32", "f32"), ("float16", "f16")])
def test_payload_layout(value_dtype: str, key: str) -> None:
    inputs, params, expected = golden("payload_layout")
    x = torch.tensor(inputs["x"])
    payload, _ = encode(f"topk(value_dtype={value_dtype})", x, params["k"] / x.numel())
    assert payload_bytes(payload).hex() == expected[f"hex_{key}"]
    assert payload.nbytes == expected[f"nbytes_{key}"]


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_casts(name: str) -> None:
    inputs, _, expected = golden(f"cast_{name}")
    x = torch.tensor(inputs["x"])
    if name == "fp16":  # a cast overflows where ours cuts: see test_float16_cuts_what_it_cannot_hold_and_counts_it
        held = [index for index, value in enumerate(inputs["x"]) if abs(value) <= CUT]
        x = x[held]
        expected = {key: [expected[key][index] for index in held] for key in ("bits_hex", "decoded")}
        expected["wire_bytes"] = 2 * len(held)
    payload, ctx = encode(name, x, 1.0)
    bits = payload.values.view(torch.int16).numpy().astype(np.uint16)
    assert [f"{b:04x}" for b in bits] == expected["bits_hex"]
    decoded = decode(name, payload, ctx, x.numel())
    assert decoded.tolist() == [float(v) for v in expected["decoded"]]
    assert payload.nbytes == expected["wire_bytes"]


@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_float16_cuts_what_it_cannot_hold_and_counts_it(ranks: int) -> None:
    before = cut_values()
    largest = torch.tensor([65440.0, 65504.0, 65520.0, 1e9, 3e38, 1.0])
    exact = torch.cat([largest, -largest, torch.tensor([math.inf, -math.inf])])
    values = torch.empty(len(exact), dtype=torch.float16)
    narrow(values, exact / ranks, ranks)
    assert cut_values() - before == 8  # 65504, 65520, 1e9 and 3e38 with both signs; infinity is not cut
    total = sum(values.clone() for _ in range(ranks))
    assert torch.allclose(total[:12].float(), exact[:12].clamp(-CUT, CUT), rtol=2**-9)
    assert not total[12:].isfinite().any()
    inside = torch.tensor([CUT, 1.0, math.nan])
    narrow(values[:3], inside)
    assert torch.equal(values[:2], inside[:2].half())
    assert values[2].isnan()
