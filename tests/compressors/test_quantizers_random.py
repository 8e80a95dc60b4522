"""Quantising codecs: unbiased over many draws, and the noise behind it, the same on every path."""

import math

import numpy as np
import pytest
import torch
from compressors.kit import decode, encode, payload_bytes

from ssfx.compressors.kernels import plain_torch
from ssfx.compressors.kernels.cpu.quantize import uniform
from ssfx.compressors.kernels.reference import pack as plain
from ssfx.wire.batch import key

SPECS = ("qsgd", "qsgd(bits=4,bucket=16)", "qsgd(bits=2)", "qsgd(bits=4,norm=max)")


@pytest.mark.parametrize("spec", SPECS)
def test_unbiased(spec: str) -> None:
    a = torch.cat([torch.linspace(-1, 1, 40), torch.tensor([0.0, -0.0, 5.0, 1e-3])])
    draws = 2000
    decoded = torch.empty(draws, a.numel(), dtype=torch.float64)
    for step in range(draws):
        payload, ctx = encode(spec, a, 1.0, step=step)
        decoded[step] = decode(spec, payload, ctx, a.numel()).double()
    error = (decoded.mean(0) - a.double()).abs()
    spread = decoded.std(0) / draws**0.5
    # an element that was drawn the same every time shows no spread; its own chance of 1 in 2,000 bounds the error
    assert torch.all(error <= 5 * spread + float(a.abs().max()) * 5 / draws)
    variance = float(((decoded - a.double()).square().sum(1)).mean())
    if spec == "qsgd(bits=2)":
        assert variance <= min(a.numel(), math.sqrt(a.numel())) * float(a.square().sum())


def test_noise_is_uniform_independent_and_the_same_on_every_path() -> None:
    n, chosen = 50_000, (0, 1, 12345678901234567890, (1 << 64) - 1)
    drawn = []
    for number in chosen:
        out = np.empty(n, np.float32)
        uniform(np.uint64(number).astype(np.int64), 0, out)
        part = np.empty(100, np.float32)
        uniform(np.uint64(number).astype(np.int64), 777, part)
        assert np.array_equal(part, out[777:877]), "a position's number does not depend on where a call starts"
        assert np.array_equal(out, plain.uniform(number, n).numpy())
        assert out.min() >= 0
        assert out.max() < 1
        drawn.append(out.astype(np.float64))
    noise = np.stack(drawn)
    assert np.all(np.abs(noise.mean(1) - 0.5) < 5 / math.sqrt(12 * n))
    cells = np.stack([np.histogram(row, 256, (0, 1))[0] for row in noise])
    chi = ((cells - n / 256) ** 2 / (n / 256)).sum(1)
    assert np.all(np.abs(chi - 255) < 5 * math.sqrt(2 * 255))
    centred = (noise - 0.5) * math.sqrt(12)
    across = centred @ centred.T / n - np.eye(len(chosen))
    assert np.abs(across).max() < 5 / math.sqrt(n) * 2
    for lag in (1, 2, 8, 16, 256, 1024, 4096):
        assert np.abs((centred[:, lag:] * centred[:, :-lag]).mean(1)).max() < 5 / math.sqrt(n - lag)


def test_noise_of_consecutive_steps_and_bits() -> None:
    rows = np.stack([plain.uniform(key(0, 3, step), 64).numpy() for step in range(2000)]).astype(np.float64)
    centred = (rows - 0.5) * math.sqrt(12)
    assert np.abs(centred.mean(0)).max() < 5 / math.sqrt(2000)
    assert np.abs((centred[1:] * centred[:-1]).mean(0)).max() < 5 / math.sqrt(2000)
    whole = (rows * 2**24).astype(np.int64)
    for bit in range(24):
        share = ((whole >> bit) & 1).mean()
        assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(whole.size), bit


@pytest.mark.slow
def test_positions_beyond_the_range_of_float32_integers() -> None:
    a = torch.randn((1 << 24) + 1, generator=torch.Generator().manual_seed(0))
    compiled, _ = encode("qsgd(bits=4)", a, 1.0)
    with plain_torch():
        reference, _ = encode("qsgd(bits=4)", a, 1.0)
    assert payload_bytes(compiled) == payload_bytes(reference)
