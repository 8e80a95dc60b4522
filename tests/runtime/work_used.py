"""What the pool's ranks run on what becomes of a gradient: stepped with, thrown away, or of a frozen parameter."""

import copy
import logging
import random
from typing import Any

import torch
from runtime.ranks import add_up, among, is_rank_0s
from runtime.work import costs_for
from torch import nn

import ssfx

Options = dict[str, Any]
RATE = 0.5
KINDS = [
    "plain",
    "plain",
    "other",
    "skip",
    "twice",
    "micro",
    "freeze",
    "bad",
    "save",
    "spike",
    "by hand",
    "by hand",
    "cancel",
    "rows",
    "idle",
    "new optimizer",
    "assign",
    "freeze here",
]
"""What a random script does next; about half of it is what few scripts do."""


class Halves(nn.Module):
    """Two halves with an optimizer each; the output has both in it."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3))
        self.b = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) + self.b(x)


def halves() -> Halves:
    torch.manual_seed(3)
    return Halves()


def loss_on(model: nn.Module, rank: int, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7919 * rank + number)
    return (model(torch.randn(8, 6, generator=generator)) - torch.randn(8, 3, generator=generator)).square().mean()


class Script:
    """A random script: what it does is drawn from `seed`, the same on every rank.

    `used` sums up, by parameter, this rank's gradients that were stepped with; `moved` what was applied, over the rate.
    """

    def __init__(self, model: Halves, sync: Any, rank: int, seed: int, forward: nn.Module | None = None) -> None:
        self.model, self.sync, self.rank, self.draw = model, sync, rank, random.Random(seed)
        self.forward = forward or model
        self.parts = {"a": model.a, "b": model.b}
        self.optimizers = {name: torch.optim.SGD(part.parameters(), RATE) for name, part in self.parts.items()}
        self.used = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        self.moved = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        self.window = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        self.number = 0

    def backward(self, bad: bool = False) -> None:
        twin = copy.deepcopy(self.model)
        twin.zero_grad()
        self.number += 1
        loss_on(twin, self.rank, self.number).backward()
        for name, p in twin.named_parameters():
            if p.grad is not None:
                self.window[name] += p.grad
        loss = loss_on(self.forward, self.rank, self.number)
        (loss * float("nan") if bad and self.rank == 0 else loss).backward()
        if bad:
            self.forget("a")
            self.forget("b")

    def forget(self, half: str) -> None:
        for name, total in self.window.items():
            if name.startswith(half):
                total.zero_()

    def zero(self, half: str) -> None:
        self.optimizers[half].zero_grad(set_to_none=self.draw.random() < 0.5)
        self.forget(half)

    def step(self, half: str) -> None:
        before = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        self.optimizers[half].step()
        for name, p in self.model.named_parameters():
            self.moved[name] += (before[name] - p.detach()) / RATE
            if name.startswith(half):
                self.used[name] += self.window[name]
        self.zero(half)

    def turn(self, feedback: bool) -> None:
        """One thing that scripts do; only what leaves no gradient of this rank alone behind."""
        half, other = self.draw.choice(["ab", "ba"])
        kind = self.draw.choice(KINDS)
        if kind == "plain":
            self.backward()
            self.step(half)
            self.step(other)
        elif kind == "other":  # as a GAN: the other half's gradients are thrown away
            self.backward()
            self.step(half)
            self.zero(other)
        elif kind == "skip":
            self.backward()
            self.zero(half)
            self.zero(other)
        elif kind == "twice":
            self.backward()
            self.backward()
            (self.step if self.draw.random() < 0.5 else self.zero)(half)
            self.step(other)
        elif kind == "micro":
            if self.draw.random() < 0.5:
                self.backward()
            with self.sync.no_sync():
                self.backward()
            if self.draw.random() < 0.7:
                self.backward()
            else:
                self.sync.synchronize()
            self.step(half)
            self.step(other)
        elif kind == "freeze":
            self.parts[half].requires_grad_(False)
            self.backward()
            self.step(other)
            self.parts[half].requires_grad_(True)
        elif kind == "bad":
            self.backward(bad=feedback)
            self.zero(half)
            self.zero(other)
        elif kind == "save" and feedback:
            self.sync.load_state_dict(self.sync.state_dict())
        elif kind == "spike":  # the step goes on with gradients that are gone
            self.backward()
            self.optimizers[half].zero_grad()
            self.forget(half)
            self.step(half)
            self.step(other)
        elif kind == "by hand":
            self.backward()
            counted = self.draw.random() < 0.5
            self.step_by_hand(half, counted)
            if counted and self.draw.random() < 0.5:
                self.zero(other)
            else:
                self.step(other)
        elif kind == "cancel":
            self.backward()
            self.cancel(half)
            self.step(half)
            self.step(other)
        elif kind == "rows":
            self.backward()
            name = f"{half}.0.weight"
            rows = torch.arange(self.model.get_parameter(name).shape[0])[:, None] % 3 == 0
            self.sync.discard(self.model.get_parameter(name), rows)
            self.window[name].masked_fill_(rows, 0.0)
            self.step(half)
            self.step(other)
        elif kind == "idle":
            self.step(half)
        elif kind == "new optimizer":
            self.optimizers[half] = torch.optim.SGD(self.parts[half].parameters(), RATE)
        elif kind == "assign":
            self.model.load_state_dict({key: v.clone() for key, v in self.model.state_dict().items()}, assign=True)
            self.optimizers = {name: torch.optim.SGD(part.parameters(), RATE) for name, part in self.parts.items()}
        elif kind == "freeze here":
            frozen = self.draw.randrange(2) == self.rank
            self.parts[half].requires_grad_(not frozen)
            self.backward()
            self.step(half)
            self.step(other)
            self.parts[half].requires_grad_(True)

    def step_by_hand(self, half: str, counted: bool) -> None:
        """Weights are moved by the script itself, in a way that torch counts or in one that it does not."""
        for name, p in self.model.named_parameters():
            if name.startswith(half) and p.grad is not None:
                before = p.detach().clone()
                (p.detach() if counted else p.data).add_(p.grad, alpha=-RATE)
                self.moved[name] += (before - p.detach()) / RATE
                self.used[name] += self.window[name]
        if isinstance(self.sync, ssfx.Sync):
            self.sync.used(*self.parts[half].parameters())
        self.zero(half)

    def cancel(self, half: str) -> None:
        """Gradients are set to zero in place, or replaced by zeros, and the optimizer steps."""
        how = self.draw.choice(["zero_", "mul_", "new", "none"])
        for p in self.parts[half].parameters():
            if how == "none" or p.grad is None:
                p.grad = None
            elif how == "new":
                p.grad = torch.zeros_like(p)
            else:
                p.grad.zero_() if how == "zero_" else p.grad.mul_(0.0)
        self.forget(half)


def keeps_mass(group: Any, rank: int, world: int, options: Options, seed: int) -> tuple[float, float, bool]:
    """Return the worst violation of applied + kept = stepped with, the most that is kept, and whether ranks agree."""
    model = halves()
    whole = torch.optim.SGD(model.parameters(), RATE)
    given = {"costs": costs_for(world), **options}
    sync = ssfx.attach(model, whole, **among(group), **given)
    script = Script(model, sync, rank, seed)
    script.backward()  # a plan that waits to be installed would end an accumulation: see `Commit.settle`
    script.step("a")
    script.step("b")
    for _ in range(25):
        script.turn(feedback=True)
    worst = kept = 0.0
    memory = sync.state_dict()["memory"]
    for name, p in model.named_parameters():
        residual = memory.get(name, {}).get("residual", torch.zeros_like(p))
        balance = script.used[name] - residual
        add_up(balance, group)
        scale = float(balance.abs().max()) + 1.0
        worst = max(worst, float((balance - world * script.moved[name]).abs().max()) / scale)
        kept = max(kept, float(residual.abs().max()))
    mine = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    agree = is_rank_0s(mine, group)
    sync.detach()
    return worst, kept, agree


def _turn_of_ddp(script: Script) -> None:
    half, other = script.draw.choice(["ab", "ba"])
    kind = script.draw.choice(["plain", "other", "skip", "twice", "micro", "idle", "cancel", "by hand", "freeze here"])
    if kind == "idle":
        script.step(half)
        return
    if kind == "freeze here":
        script.parts[half].requires_grad_(script.rank != 1)
        script.backward()
        script.parts[half].requires_grad_(True)
        script.step(half)
        script.step(other)
        return
    if kind == "micro":
        with script.sync.no_sync():
            script.backward()
    script.backward()
    if kind == "twice":
        script.backward()
    if kind == "cancel":
        script.cancel(half)
    if kind == "by hand":
        script.step_by_hand(half, script.draw.random() < 0.5)
        script.zero(other)
        return
    (script.zero if kind == "skip" else script.step)(half)
    (script.zero if kind in ("skip", "other") else script.step)(other)


Script.turn_of_ddp = _turn_of_ddp  # type: ignore[attr-defined]


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def undone_steps(group: Any, rank: int, world: int) -> tuple[int, list[str]]:
    """Twelve steps with a bad number on the last rank; return how many were undone, and what this rank said."""
    model = halves()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    sync = ssfx.attach(model, optimizer, process_group=group)
    heard = _Lines()
    logging.getLogger("ssfx").addHandler(heard)
    try:
        for number in range(12):
            optimizer.zero_grad()
            loss = loss_on(model, rank, number)
            (loss * float("inf") if rank == world - 1 else loss).backward()
            optimizer.step()
    finally:
        logging.getLogger("ssfx").removeHandler(heard)
    skipped = sync.skipped_steps
    sync.detach()
    return skipped, heard.lines
