"""Whether the averages that an exchange wrote are still in `.grad`, or a script has thrown them away.

`zero_grad()` without an optimizer's step undoes a backward pass: of GANs' passes through the other network, of guards
that skip a spike, of SAM's first pass. What is kept back of such a gradient must not be sent later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from weakref import ref

import torch


class Averages:
    """Remembers the gradients that an exchange wrote, by parameter; costs a reference and a number for each.

    `of_zeros` returns those of some parameters whose averages were written as zeros: nothing of them had been selected.
    """

    def __init__(
        self, params: dict[str, torch.nn.Parameter], of_zeros: Callable[[Collection[str]], Collection[str]]
    ) -> None:
        self._params, self._of_zeros = params, of_zeros
        self._written: dict[str, tuple[ref[torch.Tensor], int]] = {}

    def note(self, names: Iterable[str]) -> None:
        """The gradients of `names` hold their averages now."""
        written = {}
        for name in names:
            grad = self._params[name].grad
            if grad is not None:
                written[name] = (ref(grad), grad._version)
        self._written = written

    def added_to(self, name: str) -> None:
        """A backward pass without an exchange has just added to the gradient of `name`, which is no other change."""
        grad = self._params[name].grad
        if grad is not None and self._untouched(name, 1):
            self._written[name] = (ref(grad), grad._version)

    def gone(self, names: Collection[str], arriving: str | None = None) -> set[str]:
        """Return those of `names` whose average is in `.grad` no more: there is none, or it was changed to zeros.

        Call it before a new backward pass adds to gradients, but that of `arriving` may have been added to already: it
        is gone if it was touched otherwise and no average of another parameter is left. An average that was written as
        zeros stays zeros when a script scales all gradients (clipping); it is gone if another one was cleared.
        """
        left = [name for name in names if name != arriving]
        gone = {name for name in left if self._params[name].grad is None}
        changed = [name for name in left if name not in gone and not self._untouched(name, 0)]
        if changed:
            grads = [self._params[name].grad for name in changed]
            counts = torch.stack([grad.count_nonzero() for grad in grads if grad is not None]).tolist()
            zeros = {name for name, count in zip(changed, counts, strict=True) if not count}
            if zeros and not zeros <= set(self._of_zeros(zeros)):
                gone |= zeros
        if arriving is not None and arriving in names and len(gone) == len(left) and not self._untouched(arriving, 1):
            gone.add(arriving)
        return gone

    def _untouched(self, name: str, additions: int) -> bool:
        """Return whether `.grad` is the tensor that was written, changed in place so many times."""
        grad, written = self._params[name].grad, self._written.get(name)
        if grad is None or written is None:
            return False
        tensor, version = written
        return tensor() is grad and grad._version == version + additions
