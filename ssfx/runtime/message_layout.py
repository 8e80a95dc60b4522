"""One message's bytes: where each segment's sections lie, and views of them.

Sections hold all segments back to back: first, counts, scales, indices, then value sections (4-byte before 2-byte
ones), then codes, so everything is aligned without padding. Compressed segments come before dense ones inside the value
sections.
Source: D-4.
"""

from dataclasses import dataclass

import torch

from ssfx.compressors import Layout, Payload
from ssfx.compressors.batch import Starts
from ssfx.planning.plan import Lane, Plan
from ssfx.simulator.pricing.message_sizes import segment_layout
from ssfx.wire.payload import VALUE_BYTES

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
    """Offsets of all sections of a message; `order` lists segment positions, compressed before dense."""

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

        Reads the counts on the host, all at once; only variable-size collectives need it.
        """
        kept = self._kept(self.counts.of(message).tolist(), segments)
        parts = [message[: self.indices.offset], *self._tails(message, segments, kept)]
        return torch.cat(parts)

    def untrim(self, rows: torch.Tensor, segments: list[int]) -> torch.Tensor:
        """Return the padded messages [P, nbytes] that `trim` shortened to the fronts of `rows`.

        Rows begin at multiples of four bytes. Reads the counts on the host, all at once.
        """
        head, room = self.indices.offset, -(-self.nbytes // 4) * 4
        full = torch.zeros(len(rows), room, dtype=torch.uint8, device=rows.device)[:, : self.nbytes]
        full[:, :head] = rows[:, :head]
        for message, row, counts in zip(full, rows, self.counts.of(full).tolist(), strict=True):
            cursor = head
            for target in self._tails(message, segments, self._kept(counts, segments)):
                target.copy_(row[cursor : cursor + len(target)])
                cursor += len(target)
        return full

    def _kept(self, counts: list[int], segments: list[int]) -> list[int]:
        """Return how many values or indices each segment uses, by the content of the section of counts."""
        layouts = [self.layouts[i] for i in segments]
        at = [self.starts[i].counts for i in segments]
        whole = [max(used.values, used.indices) for used in layouts]  # some send positions and one value for all
        return [counts[a] if used.counts else n for used, a, n in zip(layouts, at, whole, strict=True)]

    def _tails(self, message: torch.Tensor, segments: list[int], kept: list[int]) -> list[torch.Tensor]:
        """Return the bytes in use behind scales, in order, as views of a message."""
        views = [self.payload(message, i) for i in segments]
        return [
            *(view.indices[:n].view(torch.uint8) for view, n in zip(views, kept, strict=True)),
            self.dense.of(message).view(torch.uint8),
            *(view.values[:n].view(torch.uint8) for view, n in zip(views, kept, strict=True)),
            *(view.codes for view in views),
        ]
