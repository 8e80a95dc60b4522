"""Scripts with two players or two optimizers: what one of them makes of the other's gradients is thrown away."""

import torch
from runtime.scripts.harness import RATE, STEPS, Run, network, script
from torch import nn
from torch.nn import functional


class Halves(nn.Module):
    """Two halves; the output has both in it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = network(), network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) + self.b(x)


def _says(logits: torch.Tensor, real: float) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, real))


@script
def gan(run: Run) -> None:
    """As in PyTorch's DCGAN example: the generator's loss flows through the critic, whose gradient is cleared."""
    generator, critic = network(10, 10), network(10, 1)
    of_generator = torch.optim.SGD(generator.parameters(), RATE, momentum=0.5)
    of_critic = torch.optim.SGD(critic.parameters(), RATE, momentum=0.5)
    make, judge = run.wrap(generator, of_generator, "generator"), run.wrap(critic, of_critic, "critic")
    for step in range(STEPS):
        real, _ = run.batch(step)
        of_critic.zero_grad()
        _says(judge(real), 1.0).backward()
        fake = make(run.batch(100 + step)[0])
        _says(judge(fake.detach()), 0.0).backward()
        of_critic.step()
        of_generator.zero_grad()
        _says(judge(fake), 1.0).backward()
        of_generator.step()


@script
def gradient_penalty(run: Run) -> None:
    """WGAN-GP: a second derivative in the critic's loss, and two critic steps for one of the generator."""
    generator, critic = network(10, 10), network(10, 1)
    of_generator = torch.optim.SGD(generator.parameters(), RATE)
    of_critic = torch.optim.SGD(critic.parameters(), RATE)
    make, judge = run.wrap(generator, of_generator, "generator"), run.wrap(critic, of_critic, "critic")
    for step in range(STEPS):
        real, _ = run.batch(step)
        with torch.no_grad():
            fake = make(run.batch(100 + step)[0])
        between = (0.3 * real + 0.7 * fake).requires_grad_(True)
        (slope,) = torch.autograd.grad(judge(between).sum(), between, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        of_critic.zero_grad(set_to_none=True)
        (judge(fake).mean() - judge(real).mean() + 10 * penalty).backward()
        of_critic.step()
        if step % 2:
            critic.requires_grad_(False)
            of_generator.zero_grad(set_to_none=True)
            (-critic(make(run.batch(200 + step)[0])).mean()).backward()
            of_generator.step()
            critic.requires_grad_(True)


@script
def alternating_optimizers(run: Run) -> None:
    """Each pass makes gradients for both optimizers, and they step in turn."""
    model = Halves()
    optimizers = [torch.optim.SGD(part.parameters(), RATE, momentum=0.9) for part in (model.a, model.b)]
    net = run.wrap(model, optimizers)
    for step in range(2 * STEPS):
        inputs, targets = run.batch(step)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=step % 3 > 0)
        functional.mse_loss(net(inputs), targets).backward()
        optimizers[step % 2].step()


@script
def toggled_optimizers(run: Run) -> None:
    """Lightning's toggle_optimizer: the other optimizer's parameters are frozen during a pass."""
    model = Halves()
    parts = [model.a, model.b]
    optimizers = [torch.optim.SGD(part.parameters(), RATE) for part in parts]
    net = run.wrap(model, optimizers, find_unused_parameters=True)
    for step in range(2 * STEPS):
        turn = step % 2
        parts[1 - turn].requires_grad_(False)
        inputs, targets = run.batch(step)
        functional.mse_loss(net(inputs), targets).backward()
        optimizers[turn].step()
        optimizers[turn].zero_grad()
        parts[1 - turn].requires_grad_(True)
