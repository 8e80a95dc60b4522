"""Scripts in mixed precision, and compiled ones."""

import warnings

import torch
from runtime.scripts.harness import RATE, STEPS, Run, network, script
from torch.nn import functional


@script
def grad_scaler(run: Run) -> None:
    """A GradScaler whose scale grows and falls: one rank overflows once."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
    run.scaler = scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3)
    net = run.wrap(model, optimizer)
    for step in range(2 * STEPS):
        inputs, targets = run.batch(step)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = functional.mse_loss(net(inputs), targets)
        scaler.scale(loss * float("inf") if step == 5 and run.rank == 1 else loss).backward()
        scaler.step(optimizer)
        scaler.update()


@script
def autocast(run: Run) -> None:
    """bfloat16 by autocast, with clipping too wide to clip."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    net = run.wrap(model, optimizer)
    for step in range(STEPS):
        inputs, targets = run.batch(step)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = functional.mse_loss(net(inputs), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e6)
        optimizer.step()


@script
def compiled(run: Run) -> None:
    """torch.compile first, then the exchange."""
    torch._dynamo.reset()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
    net = run.wrap(torch.compile(model, backend="eager"), optimizer)
    for step in range(STEPS):
        run.step(net, optimizer, step)


@script
def compiled_later(run: Run) -> None:
    """The exchange first, then torch.compile, which is to have nothing to say of ssfx's hooks."""
    torch._dynamo.reset()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9)
    net = torch.compile(run.wrap(model, optimizer), backend="eager")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Dynamo does not know")
        for step in range(STEPS):
            run.step(net, optimizer, step)
