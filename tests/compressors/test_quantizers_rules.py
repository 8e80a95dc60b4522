"""Quantising codecs: golden cases, contraction, the QSGD limit, and where error feedback diverges."""

import math

import numpy as np
import pytest
import torch
from compressors.kit import context, decode, encode, golden, shapes_of_data

from ssfx.compressors import build
from ssfx.compressors.kernels.cpu.codes import in_steps, level_codes, unpack, vote_codes
from ssfx.compressors.kernels.reference import pack as plain
from ssfx.compressors.memories import check_pair, memories
from ssfx.core.errors import ConfigError


def squared(x: torch.Tensor) -> float:
    return float(x.double().square().sum())


@pytest.mark.parametrize("case", ["qsgd_s4", "qsgd_s127", "qsgd_s7", "qsgd_linf_s4", "qsgd_zero"])
def test_golden_qsgd(case: str) -> None:
    inputs, params, expected = golden(case)
    x, noise, top = torch.tensor(inputs["x"]), torch.tensor(inputs["u"]), params["s"]
    norm = x.norm() if params["norm"] == "l2" else x.abs().max()
    assert float(norm) == pytest.approx(expected["norm"], rel=1e-6)
    per_unit = plain.per_unit_of(norm, top)
    levels = plain.levels_of(x, per_unit, top, noise).int()
    assert levels.tolist() == expected["levels"]
    codes, exact = np.empty(4, np.uint8), np.empty(4, np.float32)
    in_steps(x.numpy(), np.float32(per_unit), exact)
    level_codes(x.numpy(), exact, noise.numpy(), np.int32(top), np.int32(0), codes)
    assert codes.view(np.int8).tolist() == expected["levels"]
    assert (levels * norm / top).tolist() == pytest.approx(expected["decoded"], abs=1e-6)
    if top in (7, 127):
        bits = 4 if top == 7 else 8
        spec = f"qsgd(bits={bits},bucket=0,norm={'l2' if params['norm'] == 'l2' else 'max'})"
        payload, ctx = encode(spec, x, 1.0)
        assert float(payload.scales) == pytest.approx(expected["norm"], rel=1e-6)
        payload.codes.copy_(plain.pack((levels + (0 if bits == 8 else top)) & 255, bits))
        assert decode(spec, payload, ctx, 4).tolist() == pytest.approx(expected["decoded"], abs=1e-6)
        if "hex" in expected:
            assert payload.codes.numpy().tobytes().hex() == expected["hex"]
            assert payload.nbytes == expected["wire_bytes"]


def test_golden_sign_pack() -> None:
    inputs, _, expected = golden("sign_pack")
    x = torch.tensor(inputs["x"])
    payload, ctx = encode("signsgd", x, 1.0)
    assert payload.codes.numpy().tobytes().hex() == expected["hex"]
    assert len(payload.codes) == expected["wire_bytes"]
    assert decode("signsgd", payload, ctx, len(x)).tolist() == expected["decoded"]
    bits = np.empty(len(x), np.uint8)
    unpack(payload.codes.numpy(), 1, bits)
    assert bits.tolist() == expected["bits"] == plain.unpack(payload.codes, 1, len(x)).tolist()


def test_golden_signs_where_zeros_abstain() -> None:
    """By hand: codes 2 0 1 1 | 2 0 2 0 | 0 2 0 (+ pad), the first in the highest bits."""
    x = torch.tensor(golden("sign_pack")[0]["x"])
    payload, ctx = encode("signsgd(zeros=abstain)", x, 1.0)
    assert payload.codes.tolist() == [0b10000101, 0b10001000, 0b00100000]
    assert payload.scales.tolist() == [1.0]
    assert decode("signsgd(zeros=abstain)", payload, ctx, len(x)).tolist() == x.sign().tolist()
    codes = np.empty(len(x), np.uint8)
    vote_codes(x.numpy(), codes)
    assert codes.tolist() == [2, 0, 1, 1, 2, 0, 2, 0, 0, 2, 0]


def test_who_abstains_has_no_vote() -> None:
    rows, compressor, total = (
        ([1, -2, 0, 0], [0, 3, 0, -1], [0, -1, 0, 1]),
        build("signsgd(zeros=abstain)"),
        torch.zeros(4),
    )
    for row in rows:
        payload, ctx = encode(compressor, torch.tensor(row, dtype=torch.float32), 1.0)
        compressor.decompress_add(payload, total, ctx, scale=1 / 3)
    assert total.sign().tolist() == [1, -1, 0, 0]


def test_golden_majority_vote() -> None:
    inputs, _, expected = golden("majority_vote")
    compressor, total = build("signsgd"), torch.zeros(4)
    assert compressor.vote
    for row in inputs["workers"]:
        payload, ctx = encode(compressor, torch.tensor(row, dtype=torch.float32), 1.0)
        compressor.decompress_add(payload, total, ctx, scale=1 / 4)
    assert (total * 4).tolist() == expected["sum_of_signs"]
    assert total.sign().tolist() == expected["vote_tie_zero"]


def test_golden_ef_signsgd() -> None:
    inputs, _, expected = golden("ef_signsgd")
    x = torch.tensor(inputs["x"])
    payload, ctx = encode("ef_signsgd", x, 1.0)
    assert float(payload.scales) == pytest.approx(expected["scale"], rel=1e-7)
    sent = decode("ef_signsgd", payload, ctx, len(x))
    assert sent.tolist() == pytest.approx(expected["decoded"], rel=1e-7)
    left = x.clone()
    build("ef_signsgd").decompress_add(payload, left, ctx, scale=-1.0)
    assert left.tolist() == pytest.approx(expected["residual"], abs=1e-6)
    assert squared(left) == pytest.approx(expected["error_sq"], rel=1e-6)
    assert payload.nbytes == expected["wire_bytes"]


def test_golden_onebit() -> None:
    inputs, _, expected = golden("onebit")
    x = torch.tensor(inputs["x"])
    payload, ctx = encode("onebit", x, 1.0)
    assert payload.scales.tolist() == pytest.approx([expected["mean_neg"], expected["mean_nonneg"]], rel=1e-7)
    sent = decode("onebit", payload, ctx, len(x))
    assert sent.tolist() == pytest.approx(expected["decoded"], rel=1e-7)
    assert squared(x - sent) == pytest.approx(expected["error_sq"], rel=1e-6)
    assert payload.nbytes == expected["wire_bytes"]


@pytest.mark.parametrize("numel", [1, 2, 31, 33, 1000])
def test_projections(numel: int) -> None:
    """EF-SignSGD leaves |a|^2 - |a|_1^2 / n, OneBit leaves |a|^2 - n0 m0^2 - n1 m1^2, which is never more."""
    for name, a in shapes_of_data(numel).items():
        wide = a.double()
        signs = decode("ef_signsgd", *encode("ef_signsgd", a, 1.0), numel)
        means = decode("onebit", *encode("onebit", a, 1.0), numel)
        slack = 1e-6 * squared(a) + 1e-80
        sign_error, mean_error = squared(wide - signs.double()), squared(wide - means.double())
        assert abs(sign_error - (squared(a) - float(wide.abs().sum()) ** 2 / numel)) <= slack, name
        low, high = wide[wide < 0], wide[wide >= 0]
        projected = sum(float(part.sum()) ** 2 / len(part) for part in (low, high) if len(part))
        assert abs(mean_error - (squared(a) - projected)) <= slack, name
        assert mean_error <= sign_error + slack


def test_the_nearest_level_is_off_by_half_a_level_at_most_whatever_the_step() -> None:
    a = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    decoded = []
    for step in (0, 1):
        payload, ctx = encode("qsgd(bucket=0,norm=max,nearest=True)", a, 1.0, step=step)
        decoded.append(decode("qsgd(bucket=0,norm=max,nearest=True)", payload, ctx, 1000))
    assert torch.equal(*decoded)
    half = float(a.abs().max()) / 127 / 2
    assert 0.9 * half < float((decoded[0] - a).abs().max()) <= half * (1 + 1e-5)


@pytest.mark.parametrize("spec", ["qsgd", "qsgd(bits=4)", "qsgd(bits=2)", "qsgd(norm=max)"])
def test_one_element_alone_never_flips_its_sign(spec: str) -> None:
    """Rounding makes |a| / norm * s exceed s in many trials; without the limit 128 would become -128."""
    generator = torch.Generator().manual_seed(0)
    for value in torch.randn(300, generator=generator).tolist():
        a = torch.zeros(20)
        a[7] = value
        payload, ctx = encode(spec, a, 1.0)
        assert decode(spec, payload, ctx, 20).tolist() == pytest.approx(a.tolist(), rel=1e-6)


@pytest.mark.parametrize(
    "spec", ["qsgd(bits=4)", "qsgd(bucket=0)", "qsgd(bits=2,bucket=8)", "signsgd", "signsgd(zeros=abstain)"]
)
def test_error_feedback_that_would_diverge_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match="use memory=none") as error:
        check_pair(memories.build("residual"), build(spec))
    assert "\n" not in str(error.value)
    check_pair(memories.build("none"), build(spec))


def test_error_feedback_is_allowed_where_it_contracts() -> None:
    for spec in ("qsgd", "qsgd(bits=4,bucket=16)", "qsgd(bits=8,bucket=4096)", "ef_signsgd", "onebit"):
        check_pair(memories.build("residual"), build(spec))


@pytest.mark.parametrize(
    ("spec", "least", "most"),
    [("qsgd(bucket=0)", 10, 1e9), ("qsgd(bits=4)", 100, 1e9), ("qsgd", 0, 0.2)],
)
def test_the_refusal_is_not_caution(spec: str, least: float, most: float) -> None:
    """D-14: with the guard bypassed residuals grow; QSGD with buckets below s^2 stays put."""
    memory, compressor = memories.build("residual"), build(spec)
    numel, generator = 1 << 17, torch.Generator().manual_seed(0)
    old, new = {"residual": torch.zeros(numel)}, {"residual": torch.zeros(numel)}
    for step in range(60):
        memory.accumulate(torch.randn(numel, generator=generator), old, new)
        payload, ctx = encode(compressor, new["residual"], 1.0, step=step)
        memory.sent(compressor, payload, new, ctx)
        old, new = new, old
    grown = float(old["residual"].norm()) / math.sqrt(numel)
    assert least < grown < most


@pytest.mark.parametrize("spec", ["ef_signsgd", "onebit", "qsgd"])
def test_mass_is_conserved_and_residuals_stay_bounded(spec: str) -> None:
    memory, compressor, numel = memories.build("residual"), build(spec), 2000
    generator = torch.Generator().manual_seed(1)
    old, new = {"residual": torch.zeros(numel)}, {"residual": torch.zeros(numel)}
    came, went = torch.zeros(numel, dtype=torch.float64), torch.zeros(numel, dtype=torch.float64)
    for step in range(200):
        grad = torch.randn(numel, generator=generator)
        memory.accumulate(grad, old, new)
        payload, ctx = encode(compressor, new["residual"], 1.0, step=step)
        memory.sent(compressor, payload, new, ctx)
        came += grad.double()
        went += decode(compressor, payload, context(), numel).double()
        old, new = new, old
    torch.testing.assert_close(went + old["residual"].double(), came, rtol=0, atol=1e-3)
    assert float(old["residual"].norm()) < 5 * math.sqrt(numel)


@pytest.mark.parametrize("block", [16, 32, 128])
def test_a_rotation_keeps_lengths_and_is_its_own_inverse(block: int) -> None:
    a = torch.randn(3 * block + 5, generator=torch.Generator().manual_seed(block))
    turned = a.clone()
    plain.rotate(turned, block)
    assert torch.equal(turned[3 * block :], a[3 * block :]), "a shorter last block stays"
    assert squared(turned[:block]) == pytest.approx(squared(a[:block]), rel=1e-5)
    assert float(turned[0]) == pytest.approx(float(a[:block].sum()) / math.sqrt(block), abs=1e-5)
    plain.rotate(turned, block)
    torch.testing.assert_close(turned, a, rtol=1e-5, atol=1e-6)


def test_a_rotation_spreads_what_is_large() -> None:
    """One element of 32 is a hundred times as large: four bits keep less of its block, unless it is turned."""
    a = torch.randn(3200, generator=torch.Generator().manual_seed(1))
    a[::32] *= 100
    errors = {}
    for rotate in (0, 32):
        spec = f"qsgd(bits=4,bucket=32,norm=max,rotate={rotate})"
        payload, ctx = encode(spec, a, 1.0)
        errors[rotate] = squared(decode(spec, payload, ctx, len(a)) - a)
        assert payload.nbytes == build("qsgd(bits=4,bucket=32,norm=max)").layout(len(a), 1.0).nbytes
    assert errors[32] < errors[0] / 2
