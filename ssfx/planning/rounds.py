"""Rounds: ranks train alone for many steps, then exchange weights instead of gradients, whole or in parts by turns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rounds:
    """When the fragments of a model are exchanged, and how their average moves the outer weights.

    `every`: steps between two exchanges of the same fragment. `fragments`: parts of about equal size, by turns.
    `ranks_per_group`: neighbours by rank that average gradients after every step, so that rounds are between groups.
    `delay`: steps after which an exchange is waited for. `outer_lr`, `outer_momentum`: of the outer step, Nesterov's.
    """

    every: int
    fragments: int = 1
    delay: int = 0
    outer_lr: float = 1.0
    outer_momentum: float = 0.0
    ranks_per_group: int = 1

    def __post_init__(self) -> None:
        if self.every % self.fragments:
            raise ValueError(f"every={self.every} must be a multiple of fragments={self.fragments}: each has its turn")
        if self.delay >= self.turn:
            raise ValueError(f"delay={self.delay} must be below {self.turn} steps, when the next fragment is sent")

    @property
    def turn(self) -> int:
        """Steps between two exchanges."""
        return self.every // self.fragments

    @property
    def text(self) -> str:
        """The rounds in words."""
        parts = f", in {self.fragments} fragments" if self.fragments > 1 else ""
        later = f", each waited for {self.delay} steps later" if self.delay else ""
        own = f"groups of {self.ranks_per_group} ranks train by DDP" if self.ranks_per_group > 1 else "ranks step alone"
        return f"weights are exchanged every {self.every} steps{parts}{later}; {own} in between"

    def begins(self, step: int) -> int | None:
        """Return the fragment whose exchange begins after step number `step` (from 1); None: no one's."""
        return (step // self.turn - 1) % self.fragments if step > 0 and step % self.turn == 0 else None

    def ends(self, step: int) -> int | None:
        """Return the fragment whose exchange is waited for after step number `step`."""
        return self.begins(step - self.delay)
