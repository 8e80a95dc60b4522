"""OmniReduce's own exchange, on paper: what its workers and aggregators send each other, round by round, and its cost.

Blocks are dealt to parallel streams, block j to stream j mod streams. A worker sends its next block with a pointer to
the one after it; the aggregator answers with the sum and the next block that any worker has.

Source: Fei et al. 2021; D-36.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

HEADER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Round:
    """One aggregated block: who sent it, where each worker's pointer is now, which block is next (None: the end)."""

    stream: int
    block: int
    contributors: tuple[int, ...]
    next_of_each_worker: tuple[int | None, ...]
    next_block: int | None


@dataclass(frozen=True, slots=True)
class OmniReduceExchange:
    """All rounds of one exchange of `num_workers` workers in blocks of `block` float32 elements."""

    num_workers: int
    block: int
    rounds: tuple[Round, ...]

    @property
    def message_bytes(self) -> int:
        """Bytes of one block with its pointer."""
        return 4 * self.block + HEADER_BYTES

    def sent_bytes(self, worker: int) -> int:
        """Return the bytes that `worker` sends up."""
        return self.message_bytes * sum(worker in step.contributors for step in self.rounds)

    @property
    def received_bytes(self) -> int:
        """Bytes that every worker receives: each round's sum."""
        return self.message_bytes * len(self.rounds)

    def seconds(self, alpha_s: float, beta_s_per_byte: float, num_aggregators: int) -> float:
        """Return the time of the exchange with the aggregators' traffic evenly split and full-duplex links.

        The slowest of a worker's two directions and an aggregator's two, and two latencies per round of the longest
        stream.
        """
        up = [self.sent_bytes(worker) for worker in range(self.num_workers)]
        down = self.received_bytes
        busiest = max(*up, down, sum(up) / num_aggregators, self.num_workers * down / num_aggregators)
        lengths = [step.stream for step in self.rounds]
        return 2 * alpha_s * max(map(lengths.count, set(lengths))) + beta_s_per_byte * busiest


def exchange(
    nonzero: Sequence[Sequence[int]], num_blocks: int, *, block: int = 256, streams: int = 1
) -> OmniReduceExchange:
    """Return the exchange of workers of which worker w has something in the blocks `nonzero[w]`.

    The first block of every stream is always sent; a stream without blocks does not exist.
    """
    filled = [frozenset(blocks) for blocks in nonzero]
    rounds = tuple(step for stream in range(min(streams, num_blocks)) for step in _stream(stream, filled, streams))
    return OmniReduceExchange(len(nonzero), block, rounds)


def _stream(stream: int, filled: Sequence[frozenset[int]], streams: int) -> Iterator[Round]:
    to_send = [sorted(b for b in own if b % streams == stream and b > stream) for own in filled]
    block, contributors = stream, tuple(range(len(filled)))
    pointers: list[int | None] = [None] * len(filled)
    while True:
        for worker in contributors:
            pointers[worker] = to_send[worker].pop(0) if to_send[worker] else None
        following = min((pointer for pointer in pointers if pointer is not None), default=None)
        yield Round(stream, block, contributors, tuple(pointers), following)
        if following is None:
            return
        block, contributors = following, tuple(w for w, pointer in enumerate(pointers) if pointer == following)
