"""Momentum: what is not sent fades, what is sent leaves it, and it goes with what a residual goes with."""

import pytest
import torch

from ssfx.compressors import Context, Payload, build
from ssfx.compressors.memories import memories
from ssfx.core.errors import ConfigError


def test_two_steps_by_hand() -> None:
    """With half of the past: (4, 2) is kept as (0, 2), which is (0, 1) at the next step, whose gradient is (1, 3)."""
    memory, compressor = memories.build("momentum(decay=0.5)"), build("topk")
    old, ctx = {"residual": torch.zeros(2)}, Context(0, 0, 0, 1, 0.5)
    seen = []
    for grad in ([4.0, 2.0], [1.0, 3.0]):
        new = {"residual": torch.empty(2)}
        memory.accumulate(torch.tensor(grad), old, new)
        compressed = new["residual"].tolist()
        payload = Payload.allocate(compressor.layout(2, 0.5))
        compressor.compress(new["residual"], payload, ctx)
        memory.sent(compressor, payload, new, ctx)
        seen.append((compressed, new["residual"].tolist()))
        old = new
    assert seen == [([4.0, 2.0], [0.0, 2.0]), ([1.0, 4.0], [1.0, 0.0])]


@pytest.mark.parametrize("decay", ["1", "1.5", "-0.1"])
def test_a_momentum_fades(decay: str) -> None:
    with pytest.raises(ConfigError, match="decay must be in"):
        memories.build(f"momentum(decay={decay})")
