"""ACP-SGD section IV-B: how large the buffers of ResNet-50 are and how many of them it takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete, held
from experiments.common.evaluation.low_rank import compressed_buffer_bytes, compressed_buffers, dense_buffers, mib, of
from experiments.common.evaluation.pages import draw_claims
from ssfx.core.rows import Row
from ssfx.schemes.search.byte_groups import BUCKET_CAP_BYTES, MIB

NAME = "acpsgd.text.buffer"
TITLE = "Buffers of ResNet-50 at rank 4, MB meaning MiB"
COMMAND = f"ssfx figures {NAME}"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the numbers of the passage beside ours."""
    return draw_claims(NAME, TITLE, judge(rows), out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every number of the passage."""
    found, name = of("ResNet-50"), "acpsgd.iv.buf"
    by_size, filled, ddp = dense_buffers(found)
    verdicts = [
        held(f"{name}.default", BUCKET_CAP_BYTES / MIB),
        held(f"{name}.resnet50_size", mib(found.numel)),
        held(
            f"{name}.m_buffers", (by_size, max(filled, ddp)), tolerance=0.0,
            reason=f"{by_size} by size alone; tensors filled in one after the other need {filled}, DDP's rule {ddp}",
        ),
    ]  # fmt: skip
    for key, sizes in (("p", found.p), ("q", found.q)):
        buffer_bytes = compressed_buffer_bytes(sizes, found)
        verdicts += [
            held(f"{name}.{key}_size", mib(sum(sizes))),
            held(f"{name}.{key}_rate", 100 * sum(sizes) / found.numel),
            held(f"{name}.{key}_buf", buffer_bytes / MIB),
            held(f"{name}.{key}_n", compressed_buffers(sizes, found), tolerance=0.0),
        ]
    return complete(NAME, verdicts, COMMAND)
