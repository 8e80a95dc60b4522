"""Scripts whose loop is no plain one: windows, guards, searches, ends at different times."""

import copy
from contextlib import nullcontext

import torch
import torch.distributed as dist
from runtime.scripts.harness import RATE, STEPS, Run, network, script
from torch import nn
from torch.nn import functional


@script
def accumulation(run: Run) -> None:
    """Windows of three micro-batches, the last one incomplete."""
    _, optimizer, net = run.begin(network(), momentum=0.9)
    batches = 3 * STEPS - 1
    for number in range(batches):
        inputs, targets = run.batch(number)
        whole = number % 3 == 2 or number == batches - 1
        with nullcontext() if whole else net.no_sync():
            (functional.mse_loss(net(inputs), targets) / 3).backward()
        if whole:
            optimizer.step()
            optimizer.zero_grad()


@script
def exchanged_accumulation(run: Run) -> None:
    """Accumulation by someone who does not know no_sync: every micro-batch is exchanged, and clipped."""
    model, optimizer, net = run.begin(network(), momentum=0.9)
    for number in range(3 * STEPS - 1):
        inputs, targets = run.batch(number)
        (functional.mse_loss(net(inputs), targets) / 3).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e6)
        if number % 3 == 2:
            optimizer.step()
            optimizer.zero_grad(set_to_none=number % 2 == 0)


@script
def spike_guard(run: Run) -> None:
    """A step whose gradients are too large is left out."""
    model, optimizer, net = run.begin(network(), momentum=0.9)
    for step in range(2 * STEPS):
        inputs, targets = run.batch(step)
        loss = functional.mse_loss(net(inputs), targets)
        (loss * 1000 if step in (4, 9) and run.rank == 1 else loss).backward()
        if nn.utils.clip_grad_norm_(model.parameters(), float("inf")) > 20:
            optimizer.zero_grad(set_to_none=step == 4)
            continue
        optimizer.step()
        optimizer.zero_grad()


@script
def learning_rate_finder(run: Run) -> None:
    """Steps at growing rates, of which the weights are taken back before the training."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    net = run.wrap(model, optimizer)
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    search = torch.optim.lr_scheduler.ExponentialLR(optimizer, 2.0)
    for step in range(2 * STEPS):
        inputs, targets = run.batch(step)
        if step == STEPS:
            model.load_state_dict(before[0])
            optimizer.load_state_dict(before[1])
            optimizer.param_groups[0]["lr"] = RATE
        optimizer.zero_grad()
        functional.mse_loss(net(inputs), targets).backward()
        optimizer.step()
        if step < STEPS:
            search.step()


@script
def agreed_stop(run: Run) -> None:
    """One rank wants to stop, and all ask in every step whether somebody does; a last gradient is left unused."""
    _, optimizer, net = run.begin(network(), momentum=0.9)
    for step in range(2 * STEPS):
        inputs, targets = run.batch(step)
        optimizer.zero_grad()
        functional.mse_loss(net(inputs), targets).backward()
        stop = torch.tensor([float(run.rank == 1 and step == STEPS)])
        dist.all_reduce(stop, group=run.group)
        if stop.item():
            break
        optimizer.step()


@script
def unequal_batches(run: Run) -> None:
    """A rank has fewer batches, inside a join context."""
    _, optimizer, net = run.begin(network())
    with net.join() if run.options is None else run.syncs["net"].join():
        for step in range(STEPS - 3 * run.rank):
            run.step(net, optimizer, step)
