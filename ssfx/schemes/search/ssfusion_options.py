"""Options of SSFusion: its two extensions, and where the paper and the authors' public code differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from ssfx.schemes.base import SparseOptions
from ssfx.schemes.online_planning import OnlinePlanning


@dataclass(frozen=True, kw_only=True)
class SsfusionOptions(SparseOptions):
    """Options of all four variants; those marked [code] reproduce the authors' public code.

    offload, interleave: the two extensions; together they name the variant. buffers: "cupcake" searches the best
    contiguous grouping, "equal_count" [code] cuts L // `groups` tensors each (null: 20). rule: "paper" leaves tensors
    dense by Eq. 2, "code" [code] by the size that suits each buffer; "guarded" takes, of the plans that Eq. 2 gives for
    other buffers, with and without each extension, and of PyTorch DDP's dense one, the one with the least price. guard:
    how many elements may stay dense (volume, strict, none). first_buffer: "budget" lets the first buffer leave out as
    much as the guard allows, "skip" nothing. rho_min: lowest density after compensation; compensate false [code] keeps
    the density.
    late_dense_index true [code] sends gathered dense tensors with their indices. separate "if_better" keeps an
    all-reduce only where the predicted step does not get longer. dense_escape makes a buffer dense where that is
    predicted to be faster. profile_iters: dense iterations before the plan, the first of which is not counted.
    """

    offload: bool = False
    interleave: bool = False
    buffers: Literal["cupcake", "equal_count"] = "cupcake"
    groups: Annotated[int | None, 1] = None
    rule: Literal["guarded", "paper", "code"] = "guarded"
    guard: Literal["volume", "strict", "none"] = "volume"
    first_buffer: Literal["budget", "skip"] = "budget"
    rho_min: Annotated[float, "(0, 1]"] = 0.001
    compensate: bool = True
    late_dense_index: bool = False
    separate: Literal["local", "if_better"] = "local"
    dense_escape: bool = False
    profile_iters: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.profile_iters < 2:
            raise ValueError(f"profile_iters must be at least 2, as the first is not counted; got {self.profile_iters}")
        self.refuse_idle(
            (self.buffers != "equal_count", "groups", "buffers=equal_count"),
            (self.rule == "code", "guard", "rule=paper"),
            (self.rule == "code", "first_buffer", "rule=paper"),
            (not self.compensate and self.guard != "strict", "rho_min", "compensate=true"),
            (not self.interleave, "separate", "interleave=true"),
        )

    def online(self) -> OnlinePlanning:
        """Return the dense steps before the plan."""
        return replace(super().online(), observed_steps=self.profile_iters)

    @property
    def variant(self) -> str:
        """Name of the scheme that these options describe."""
        letters = ("o" if self.offload else "") + ("i" if self.interleave else "")
        return f"ssfusion_{letters or 'naive'}"
