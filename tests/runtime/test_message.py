"""The bytes of a lane: sections lie side by side, and trimming a message loses nothing."""

from dataclasses import dataclass

import torch
from hypothesis import given
from hypothesis import strategies as st

from ssfx.planning.plan import Bucket, Lane, Plan, Segment, TensorSpec, launch_in_order
from ssfx.runtime.message_layout import MessageLayout
from ssfx.simulator.pricing.message_sizes import lane_bytes

COMPRESSORS = [
    "topk",
    "topk(value_dtype=float16)",
    "dgc",
    "dgc(value_dtype=float16)",
    "dgc(value_dtype=bfloat16)",
    "randomk",
    "fp16",
]


@dataclass(frozen=True)
class Made:
    lane: Lane
    plan: Plan
    layout: MessageLayout

    @property
    def packed(self) -> list[int]:
        return [i for i in self.layout.order if not self.lane.segments[i].dense]


@st.composite
def messages(draw: st.DrawFn, compressors: list[str] = COMPRESSORS) -> Made:
    """A lane of one compressor with dense tensors between, in any order."""
    compressor = draw(st.sampled_from(compressors))
    dtype = draw(st.sampled_from(["float32", "float16", "bfloat16"]))
    parts = draw(st.lists(st.tuples(st.booleans(), st.integers(1, 60), st.floats(0.01, 1.0)), min_size=1, max_size=6))
    specs = tuple(TensorSpec(f"t{i}", (numel,), dtype) for i, (_, numel, _) in enumerate(parts))
    segments = tuple(
        Segment((f"t{i}",)) if dense else Segment((f"t{i}",), compressor, density)
        for i, (dense, _, density) in enumerate(parts)
    )
    lane = Lane("all_gather_v", segments)
    buckets = (Bucket((lane,)),)
    plan = Plan("by_hand", 2, specs, buckets, launch_in_order(buckets, specs))
    return Made(lane, plan, MessageLayout(lane, plan))


@given(messages())
def test_sections_are_disjoint_aligned_and_fill_the_message(made: Made) -> None:
    layout = made.layout
    sections = [layout.counts, layout.scales, layout.indices, layout.dense, layout.values, layout.codes]
    cursor = 0
    for section in sorted((s for s in sections if s.length), key=lambda s: s.offset):
        assert section.offset == cursor
        assert section.offset % section.dtype.itemsize == 0
        cursor += section.length * section.dtype.itemsize
    assert cursor == layout.nbytes == sum(part.nbytes for part in layout.layouts)
    assert layout.nbytes == lane_bytes(made.plan, made.lane)


@given(messages())
def test_payloads_do_not_overlap(made: Made) -> None:
    message = torch.zeros(made.layout.nbytes, dtype=torch.uint8)
    taken = sum(made.layout.dense.of(message).view(torch.uint8).numel() for _ in range(1))
    made.layout.dense.of(message).view(torch.uint8).add_(1)
    for i in made.packed:
        payload = made.layout.payload(message, i)
        for part in (payload.counts, payload.scales, payload.indices, payload.values, payload.codes):
            part.view(torch.uint8).add_(1)
            taken += part.nbytes
    assert taken == message.numel()
    assert bool((message == 1).all())


def _fill(made: Made, fractions: list[float]) -> torch.Tensor:
    """Return a message with random content whose counted segments use a fraction of their slots, the rest zero."""
    message = torch.zeros(made.layout.nbytes, dtype=torch.uint8)
    generator = torch.Generator().manual_seed(made.layout.nbytes)
    made.layout.dense.of(message).copy_(torch.randn(made.layout.dense.length, generator=generator))
    for i, fraction in zip(made.packed, fractions, strict=False):
        payload = made.layout.payload(message, i)
        used = int(fraction * len(payload.values)) if len(payload.counts) else len(payload.values)
        payload.counts.fill_(used)
        if len(payload.indices):
            payload.indices[:used].copy_(torch.arange(used))
        payload.values[:used].copy_(torch.randn(used, generator=generator))
    return message


FRACTIONS = st.lists(st.floats(0, 1), min_size=6, max_size=6)


@given(messages(), FRACTIONS, st.integers(0, 9))
def test_trim_and_untrim_are_inverse(made: Made, fractions: list[float], padding: int) -> None:
    message = _fill(made, fractions)
    short = made.layout.trim(message, made.packed)
    unused = 0
    for i in made.packed:
        payload = made.layout.payload(message, i)
        if len(payload.counts):
            free = len(payload.values) - int(payload.counts)
            unused += free * (4 + payload.values.element_size())
    assert short.numel() == message.numel() - unused
    row = torch.cat([short, torch.full((padding,), 255, dtype=torch.uint8)])  # as a longer message of a peer leaves it
    assert torch.equal(made.layout.untrim(row[None], made.packed)[0], message)


@given(messages(["dgc", "dgc(value_dtype=float16)", "topk"]), FRACTIONS)
def test_a_poisoned_segment_is_not_finite_after_trimming(made: Made, fractions: list[float]) -> None:
    message = _fill(made, fractions)
    for i in made.packed:
        made.layout.payload(message, i).poison()
    received = made.layout.untrim(made.layout.trim(message, made.packed)[None], made.packed)[0]
    assert torch.equal(received, message)
    for i in made.packed:
        payload = made.layout.payload(received, i)
        assert bool(payload.values.isnan().all())
        assert not payload.indices.any()


@given(messages())
def test_views_of_gathered_rows_are_the_views_of_each_message(made: Made) -> None:
    messages_ = torch.stack([_fill(made, [0.5] * 6), _fill(made, [1.0] * 6)])
    aligned = torch.zeros(2, -(-made.layout.nbytes // 4) * 4, dtype=torch.uint8)
    aligned[:, : made.layout.nbytes] = messages_
    for section in (made.layout.counts, made.layout.indices, made.layout.dense, made.layout.values):
        rows = section.of(aligned[:, : made.layout.nbytes])
        for row, message in zip(rows, messages_, strict=True):
            assert torch.equal(row, section.of(message.clone()))
