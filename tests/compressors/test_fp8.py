"""fp8: what a block's scale does, how far a decoded number may be off, and that fed back errors go out in the end."""

import pytest
import torch
from compressors.kit import decode, encode

from ssfx.compressors import build


def test_the_largest_magnitude_of_a_block_is_sent_exactly() -> None:
    a = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * torch.logspace(-6, 6, 1000)
    payload, ctx = encode("fp8", a, 1.0)
    sent = decode("fp8", payload, ctx, 1000)
    for block, decoded in zip(a.split(512), sent.split(512), strict=True):
        at = int(block.abs().argmax())
        assert float(decoded[at]) == pytest.approx(float(block[at]), rel=1e-6)


def test_errors_are_relative_down_to_the_range_of_the_format() -> None:
    a = torch.randn(5000, generator=torch.Generator().manual_seed(1))
    payload, ctx = encode("fp8", a, 1.0)
    error = (decode("fp8", payload, ctx, 5000) - a).abs()
    assert torch.all(error <= a.abs() * 2.0**-4 + a.abs().max() * 2.0**-18)
    assert float(error.norm() / a.norm()) < 0.03, "of normal numbers"


@pytest.mark.parametrize("magnitude", [1e-45, 1e-38, 3e38])
def test_magnitudes_at_the_ends_of_float32_stay_finite(magnitude: float) -> None:
    a = torch.tensor([magnitude, -magnitude / 2, 0.0, magnitude / 4])
    payload, ctx = encode("fp8", a, 1.0)
    sent = decode("fp8", payload, ctx, 4)
    assert torch.isfinite(sent).all()
    assert torch.allclose(sent, a, rtol=2.0**-4, atol=1e-40)


def test_a_byte_an_element_and_a_scale_a_block() -> None:
    assert build("fp8").layout(1025, 1.0).nbytes == 1025 + 4 * 3
    assert build("fp8").layout(0, 1.0).nbytes == 0


def test_fed_back_errors_do_not_pile_up() -> None:
    gradient = torch.randn(300, generator=torch.Generator().manual_seed(2))
    kept, received = torch.zeros(300), torch.zeros(300)
    for step in range(50):
        a = gradient + kept
        payload, ctx = encode("fp8", a, 1.0, step=step)
        sent = decode("fp8", payload, ctx, 300)
        kept, received = a - sent, received + sent
    assert float((received / 50 - gradient).abs().max()) < 1e-2
    assert float(kept.norm()) < 0.05 * float(gradient.norm())
