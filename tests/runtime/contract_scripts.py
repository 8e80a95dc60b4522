"""Scripts that use, throw away or change averaged gradients; each says what of its passes an optimizer stepped with.

The loss is linear, so that the gradient of a pass is known: its factor times a pattern that each rank has of its own.
Of `small`, whose gradients are twenty times smaller, selection over the whole model sends nothing at first.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from runtime.ranks import add_up, among
from torch import nn

import ssfx

LR = 0.01
STEPS = 24
SOURCES: dict[Callable[[Script], None], str] = {}
"""Every script, and where one like it was reported in public; "no report" where none was looked up."""


def seen_in(source: str) -> Callable[[Callable[[Script], None]], Callable[[Script], None]]:
    """Make a script known, with its public source."""

    def know(script: Callable[[Script], None]) -> Callable[[Script], None]:
        SOURCES[script] = source
        return script

    return know


class Net(nn.Module):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.large, self.small = nn.Parameter(torch.zeros(48, 32)), nn.Parameter(torch.zeros(48, 32))
        pattern = torch.rand(2, 48, 32, generator=torch.Generator().manual_seed(rank + 1)) + 0.5
        self.pattern = {"large": pattern[0], "small": 0.05 * pattern[1]}

    def forward(self) -> torch.Tensor:
        return sum((self.pattern[name] * p).sum() for name, p in self.named_parameters())  # type: ignore[return-value]


class Script:
    """What a script has: `net`, `optimizer` (SGD of all), `sync`; and the books of what it applied and stepped with."""

    def __init__(self, group: Any, rank: int, options: dict[str, Any]) -> None:
        self.net, self.rank, self.group = Net(rank), rank, group
        self.optimizer = torch.optim.SGD(self.net.parameters(), LR)
        self.sync: Any = ssfx.attach(self.net, self.optimizer, **among(group), **options)
        self.named = dict(self.net.named_parameters())
        self.applied = {name: torch.zeros_like(p) for name, p in self.named.items()}
        self.used = {name: torch.zeros_like(p) for name, p in self.named.items()}

    def backward(self, factor: float = 1.0) -> None:
        (factor * self.net()).backward()

    def uses(self, factor: float = 1.0, *names: str, where: torch.Tensor | None = None) -> None:
        """Passes of this factor have been stepped with: of all weights or of `names`, of all elements or `where`."""
        for name in names or self.named:
            gradient = factor * self.net.pattern[name]
            self.used[name] += gradient if where is None else gradient * where

    def moves(self, move: Callable[[], Any], sign: float = -1.0) -> None:
        """Do what moves weights by averaged gradients, and keep books on it."""
        before = {name: p.detach().clone() for name, p in self.named.items()}
        move()
        for name, p in self.named.items():
            self.applied[name] += (p.detach() - before[name]) * (sign / LR)

    def step(self, factor: float = 1.0, *names: str) -> None:
        """Step with all that is in `.grad`, by passes of this factor, then clear it."""
        self.moves(self.optimizer.step)
        self.uses(factor, *names)
        self.optimizer.zero_grad()

    def off(self, world: int) -> float:
        """Return the largest error of applied + kept = stepped with, over the largest number in it."""
        memory, worst = self.sync.state_dict()["memory"], 0.0
        for name in self.named:
            kept = memory.get(name, {}).get("residual", torch.zeros_like(self.used[name])).view(48, 32)
            balance, total = self.used[name] - kept, self.used[name].clone()
            add_up(balance, self.group)
            add_up(total, self.group)
            error = (balance / world - self.applied[name]).abs().max() / total.abs().max().clamp(min=1e-9)
            worst = max(worst, float(error))
        return worst


def books(group: Any, rank: int, world: int, script: str, options: dict[str, Any]) -> float:
    """Run a script by its name; return how far its books are off."""
    run = Script(group, rank, options)
    next(one for one in SOURCES if one.__name__ == script)(run)
    try:
        return run.off(world)
    finally:
        run.sync.detach()


def _touch(change: Callable[[nn.Parameter], Any]) -> Callable[[Script], None]:
    def train(s: Script) -> None:
        for _ in range(STEPS):
            s.backward()
            change(s.net.small)
            s.step()

    return train


# ---- gradients that are changed and stepped with ---------------------------------------------------------------------


def _known(name: str, source: str, change: Callable[[nn.Parameter], Any]) -> None:
    script = _touch(change)
    script.__name__ = name
    seen_in(source)(script)


def _put(p: nn.Parameter, grad: torch.Tensor | None) -> None:
    p.grad = grad


_known("factor_of_one_part", "nolearn#195", lambda p: p.grad.mul_(1.0))
_known("factor_by_data", "diffusers#507", lambda p: p.grad.data.mul_(1.0))
_known("one_part_is_clipped", "transformers#614", lambda p: nn.utils.clip_grad_norm_([p], 1e9))
_known("decay_in_the_gradient", "no report", lambda p: p.grad.add_(p.detach(), alpha=0.0))
_known("noise_of_size_zero", "wandb/senpai#3221", lambda p: p.grad.add_(torch.randn_like(p), alpha=0.0))
_known("none_where_all_is_zero", "megvii-model/DetNAS#3", lambda p: _put(p, p.grad if p.grad.any() else None))
_known("repaired_numbers", "habitat-lab#2226", lambda p: torch.nan_to_num(p.grad, out=p.grad))
_known("cloned", "no report", lambda p: _put(p, p.grad.clone()))
_known("masked_by_ones", "diffusers#661", lambda p: p.grad.mul_(torch.ones(48, 1)))


# ---- exchanges that no step uses -------------------------------------------------------------------------------------


def _leaves_out(name: str, source: str, then: Callable[[Script], Any]) -> None:
    def script(s: Script) -> None:
        for step in range(STEPS):
            spike = step % 6 == 5
            s.backward(-100.0 if spike else 1.0)
            if spike:
                s.optimizer.zero_grad()
                then(s)
            else:
                s.step()

    script.__name__ = name
    seen_in(source)(script)


def _state_again(s: Script) -> None:
    s.net.load_state_dict(copy.deepcopy(s.net.state_dict()))


def _by_hand(change: Callable[[nn.Parameter], Any]) -> Callable[[Script], None]:
    def changed(s: Script) -> None:
        with torch.no_grad():
            for p in s.net.parameters():
                change(p)

    return changed


_leaves_out("spike_is_left_out", "KempnerForge#2", lambda s: None)
_leaves_out("spike_and_weights_loaded", "YOLO-Master#263", _state_again)
_leaves_out("spike_and_decay", "no report", _by_hand(lambda p: p.data.mul_(1 - 1e-6)))
_leaves_out("spike_and_clamp", "WassersteinGAN#50", _by_hand(lambda p: p.clamp_(-0.08, 10.0)))
_leaves_out("spike_and_average", "no report", _by_hand(lambda p: p.lerp_(p + 1.0, 1e-4)))
_leaves_out("spike_and_new_data", "no report", _by_hand(lambda p: setattr(p, "data", p.data * 0.999)))


@seen_in("trl#254")
def epoch_is_left(s: Script) -> None:
    for _ in range(6):
        for step in range(4):
            s.backward()
            if step == 3:
                s.optimizer.zero_grad()
                break
            s.step()


@seen_in("pytorch-generative-model-collections#31")
def two_players(s: Script) -> None:
    players = [torch.optim.SGD([p], LR) for p in s.named.values()]
    for step in range(STEPS):
        name = ("large", "small")[step % 2]
        s.backward()
        s.moves(players[step % 2].step)
        s.uses(1.0, name)
        s.net.zero_grad()


@seen_in("davda54/sam#18")
def sharpness_by_hand(s: Script) -> None:
    for _ in range(STEPS):
        s.backward(3.0)
        with torch.no_grad():
            climb = {name: 0.05 * p.grad for name, p in s.named.items()}
            for name, p in s.named.items():
                p.add_(climb[name])
        s.optimizer.zero_grad()
        s.backward()
        with torch.no_grad():
            for name, p in s.named.items():
                p.sub_(climb[name])
        s.step()


@seen_in("pytorch-ewc#1")
def fisher_information(s: Script) -> None:
    for _ in range(8):
        for _ in range(2):
            s.backward()
            s.step()
        with s.sync.exact():
            s.backward(2.0)
        for name, p in s.named.items():
            mean = 2.0 * s.net.pattern[name]
            add_up(mean, s.group)
            assert torch.allclose(p.grad, mean / s.sync.comm.world_size, rtol=1e-5)
        s.optimizer.zero_grad()


# ---- cancelled by the script -----------------------------------------------------------------------------------------


def _cancels(name: str, source: str, how: Callable[[nn.Parameter], Any]) -> None:
    def script(s: Script) -> None:
        for step in range(STEPS):
            s.backward()
            if step % 3 == 2:
                how(s.net.large)
                s.step(1.0, "small")
            else:
                s.step()

    script.__name__ = name
    seen_in(source)(script)


_cancels("frozen_by_none", "KellerJordan/Muon#54", lambda p: _put(p, None))
_cancels("frozen_by_zero", "caffe2#2504", lambda p: p.grad.zero_())
_cancels("frozen_by_factor", "fairseq#13", lambda p: p.grad.mul_(0.0))
_cancels("frozen_by_new_zeros", "no report", lambda p: _put(p, torch.zeros_like(p)))


@seen_in("rigl#5")
def rows_are_left_out(s: Script) -> None:
    rows = (torch.arange(48) % 3 == 0)[:, None]
    for _ in range(STEPS):
        s.backward()
        s.sync.discard(s.net.large, rows)
        s.moves(s.optimizer.step)
        s.uses(1.0, "small")
        s.uses(1.0, "large", where=~rows)
        s.optimizer.zero_grad()


# ---- weights that the script moves -----------------------------------------------------------------------------------


def _moves_itself(name: str, source: str, rate: float, by_data: bool) -> None:
    def script(s: Script) -> None:
        def move() -> None:
            for p in s.net.parameters():
                (p.data if by_data else p.detach()).add_(p.grad, alpha=rate)

        for _ in range(STEPS):
            s.backward()
            s.moves(move, sign=1.0 if rate > 0 else -1.0)
            s.sync.used()
            s.uses()
            s.net.zero_grad()

    script.__name__ = name
    seen_in(source)(script)


_moves_itself("descent_by_hand", "pytorch#1271", -LR, by_data=False)
_moves_itself("descent_by_data", "pytorch#33874", -LR, by_data=True)
_moves_itself("ascent_by_hand", "machine-unlearning#2", LR, by_data=False)


@seen_in("peft#3382")
def step_is_replaced(s: Script) -> None:
    def replaced() -> None:
        with torch.no_grad():
            for p in s.net.parameters():
                p -= LR * p.grad

    s.optimizer.step = replaced  # type: ignore[method-assign,assignment]
    for _ in range(STEPS):
        s.backward()
        s.moves(s.optimizer.step)
        s.sync.used(s.net.large, s.net.small)
        s.uses()
        s.optimizer.zero_grad()


# ---- several passes a step -------------------------------------------------------------------------------------------


def _accumulates(name: str, source: str, between: Callable[[Script], Any], factor: float, local: bool) -> None:
    def script(s: Script) -> None:
        for _ in range(STEPS):
            with s.sync.no_sync() if local else nullcontext():
                s.backward()
            between(s)
            s.backward()
            s.step(factor)

    script.__name__ = name
    seen_in(source)(script)


_accumulates("accumulates_locally", "apex#1175", lambda s: None, 2.0, local=True)
_accumulates("accumulates_averages", "accelerate#106", lambda s: None, 2.0, local=False)
_accumulates("weights_move_between", "no report", _by_hand(lambda p: p.mul_(1.0)), 2.0, local=False)
_accumulates("clips_between", "accelerate#641", lambda s: nn.utils.clip_grad_norm_(s.net.parameters(), 1e9), 2.0, False)


@seen_in("Pytorch-PCGrad#5")
def gradients_are_combined(s: Script) -> None:
    for _ in range(STEPS):
        put_aside = []
        with s.sync.no_sync():
            for factor in (1.0, 3.0):
                s.optimizer.zero_grad()
                s.backward(factor)
                put_aside.append({name: p.grad.clone() for name, p in s.named.items()})
        for name, p in s.named.items():
            p.grad = 0.5 * put_aside[0][name] + 0.5 * put_aside[1][name]
        s.sync.synchronize()
        s.step(2.0)


@seen_in("davda54/sam#8")
def step_with_a_closure(s: Script) -> None:
    def closure() -> torch.Tensor:
        s.optimizer.zero_grad()
        loss = s.net()
        loss.backward()
        return loss

    for _ in range(STEPS):
        s.moves(lambda: s.optimizer.step(closure))
        s.uses()


@seen_in("pytorch#30439")
def closure_is_asked_often(s: Script) -> None:
    class Twice(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            with torch.enable_grad():
                closure()
                loss = closure()
            super().step()
            return loss

    twice = Twice(s.net.parameters(), LR)

    def closure() -> torch.Tensor:
        twice.zero_grad()
        loss = s.net()
        loss.backward()
        return loss

    for _ in range(STEPS):
        s.moves(lambda: twice.step(closure))
        s.uses()
