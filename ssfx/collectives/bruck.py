"""Bruck's all-gather: what every member has, in ceil(log2) messages of a growing number of parts, for any number."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

Swap = Callable[[int, "list[T]", int, int], "list[T]"]
"""swap(to, parts, source, count): send `parts` to one member in one message; return `count` parts of another."""


def gather_rounds(members: int) -> list[tuple[int, int]]:
    """Return (distance, parts) of each round: how far and how many; parts add up to members - 1."""
    rounds, have = [], 1
    while have < members:
        rounds.append((have, min(have, members - have)))
        have += rounds[-1][1]
    return rounds


def gather(own: T, position: int, members: int, swap: Swap[T]) -> list[T]:
    """Return the parts of all members in order of position.

    Member w holds parts w, w + 1, ... (modulo `members`): in a round of distance D it sends the first ones that it
    holds to w - D, and appends those of w + D. Source: D-33.
    """
    held = [own]
    for distance, count in gather_rounds(members):
        to, source = (position - distance) % members, (position + distance) % members
        held += swap(to, held[:count], source, count)
    return [held[(j - position) % members] for j in range(members)]
