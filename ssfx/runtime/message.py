"""The bytes of one lane: where each segment's sections lie in the message, and views of them.

Sections hold all segments back to back: first, counts, scales, indices, then value sections (4-byte before 2-byte
ones), then codes, so everything is aligned without padding. Compressed segments come before dense ones inside the value
sections.
Source: D-4.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ssfx.compressors import Layout, Payload
from ssfx.compressors.base import VALUE_BYTES
from ssfx.compressors.batch import Starts
from ssfx.planning.plan import Lane, Plan
from ssfx.pricing.message_sizes import segment_layout

DTYPES = {name: getattr(torch, name) for name in VALUE_BYTES}


@dataclass(frozen=True, slots=True)
class Section:
    """A run of `length` entries of one dtype starting at byte `offset`."""

    offset: int
    length: int
    dtype: torch.dtype

    def of(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the typed view of this section in a message [bytes] or in gathered rows [P, bytes]."""
        end = self.offset + self.length * self.dtype.itemsize
        return rows[..., self.offset : end].view(self.dtype)


class MessageLayout:
    """Offsets of all sections of a lane's message; `order` lists segment positions, compressed before dense."""

    def __init__(self, lane: Lane, plan: Plan) -> None:
        dtype = plan.by_name[lane.tensors[0]].dtype
        self.numel = [plan.numel(segment) for segment in lane.segments]
        self.layouts: list[Layout] = [segment_layout(plan, segment) for segment in lane.segments]
        dense = [segment.dense for segment in lane.segments]
        self.order = sorted(range(len(dense)), key=lambda i: (dense[i], i))
        packed = [i for i in self.order if not dense[i]]
        plain = [i for i in self.order if dense[i]]
        value_dtype = self.layouts[packed[0]].value_dtype if packed else "float32"

        cursor = 0

        def section(counts: list[int], dtype: torch.dtype) -> tuple[Section, list[int]]:
            nonlocal cursor
            starts, total = [], 0
            for count in counts:
                starts.append(total)
                total += count
            made = Section(cursor, total, dtype)
            cursor += total * dtype.itemsize
            return made, starts

        def of(kind: str) -> list[int]:
            return [getattr(self.layouts[i], kind) for i in packed]

        first_dtype = self.layouts[packed[0]].first_dtype if packed else "float32"
        self.first, first_at = section(of("first"), getattr(torch, first_dtype))
        self.counts, counts_at = section(of("counts"), torch.int32)
        self.scales, scales_at = section(of("scales"), torch.float32)
        self.indices, indices_at = section(of("indices"), torch.int32)
        plain_counts = [self.layouts[i].values for i in plain]
        dense_first = DTYPES[dtype].itemsize >= DTYPES[value_dtype].itemsize
        if dense_first:
            self.dense, _ = section(plain_counts, DTYPES[dtype])
        self.values, values_at = section(of("values"), DTYPES[value_dtype])
        if not dense_first:
            self.dense, _ = section(plain_counts, DTYPES[dtype])
        self.codes, codes_at = section(of("code_bytes"), torch.uint8)
        self.nbytes = cursor
        self.starts = {
            i: Starts(counts_at[n], scales_at[n], indices_at[n], values_at[n], codes_at[n], first_at[n])
            for n, i in enumerate(packed)
        }

    def sections(self, message: torch.Tensor) -> Payload:
        """Return the views of all compressed segments together."""
        kinds = (self.counts, self.scales, self.indices, self.values, self.codes, self.first)
        return Payload(*(section.of(message) for section in kinds))

    def payload(self, message: torch.Tensor, segment: int) -> Payload:
        """Return the views of one compressed segment in a message [bytes]."""
        layout = self.layouts[segment]
        lengths = (layout.counts, layout.scales, layout.indices, layout.values, layout.code_bytes, layout.first)
        sections = (self.counts, self.scales, self.indices, self.values, self.codes, self.first)
        return Payload(
            *(
                section.of(message)[start : start + length]
                for section, start, length in zip(sections, self.starts[segment], lengths, strict=True)
            )
        )

    def trim(self, message: torch.Tensor, segments: list[int]) -> torch.Tensor:
        """Return the message without padding: of each counted segment only `count` indices and values.

        Reads the counts on the host; only variable-size collectives need it.
        """
        used = [int(self.payload(message, i).counts[0]) if self.layouts[i].counts else -1 for i in segments]
        parts = [message[: self.indices.offset]]
        views = [self.payload(message, i) for i in segments]
        kept = [len(v.values) if n < 0 else n for v, n in zip(views, used, strict=True)]
        for kind in ("indices", "dense", "values", "codes"):
            if kind == "dense":
                parts.append(self.dense.of(message).view(torch.uint8))
                continue
            for view, n in zip(views, kept, strict=True):
                entries = getattr(view, kind)
                parts.append((entries if kind == "codes" else entries[:n]).view(torch.uint8))
        return torch.cat(parts)

    def untrim(self, row: torch.Tensor, segments: list[int]) -> torch.Tensor:
        """Return the padded message that `trim` shortened to the front of `row`."""
        full = torch.zeros(self.nbytes, dtype=torch.uint8, device=row.device)
        head = self.indices.offset
        full[:head] = row[:head]
        views = [self.payload(full, i) for i in segments]
        kept = [
            int(v.counts[0]) if self.layouts[i].counts else len(v.values) for v, i in zip(views, segments, strict=True)
        ]
        cursor = head

        def take(target: torch.Tensor) -> None:
            nonlocal cursor
            size = target.numel() * target.element_size()
            target.view(torch.uint8).copy_(row[cursor : cursor + size])
            cursor += size

        for kind in ("indices", "dense", "values", "codes"):
            if kind == "dense":
                take(self.dense.of(full))
                continue
            for view, n in zip(views, kept, strict=True):
                entries = getattr(view, kind)
                take(entries if kind == "codes" else entries[:n])
        return full
