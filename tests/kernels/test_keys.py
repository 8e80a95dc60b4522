"""Keys made inside compiled kernels are those of D-8, whatever the seed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssfx.compressors.kernels.cpu import random_keys as compiled
from ssfx.wire.batch import key


@given(
    seed=st.integers(-(2**70), 2**70) | st.sampled_from([0, -1, 2**63 - 1, 2**63, 2**64 - 1]),
    tensor_id=st.integers(0, 10_000),
    step=st.integers(0, 10_000_000),
    rank=st.integers(0, 1000),
)
@settings(deadline=None)
def test_compiled_keys_are_those_of_python(seed: int, tensor_id: int, step: int, rank: int) -> None:
    assert int(compiled.key(compiled.signed(seed), tensor_id, step, rank)) == key(seed, tensor_id, step, rank)


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63, 2**64 + 5])
def test_a_signed_seed_is_the_same_in_64_bits(seed: int) -> None:
    assert -(2**63) <= compiled.signed(seed) < 2**63
    assert compiled.signed(seed) % 2**64 == seed % 2**64
