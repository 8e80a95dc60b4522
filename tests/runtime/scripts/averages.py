"""Scripts that keep copies: averages of weights, the best so far, checkpoints, evaluation between steps."""

import copy
import io
from typing import Any

import torch
from runtime.scripts.harness import STEPS, Run, network, script
from torch import nn
from torch.nn import functional
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn


def _normed() -> nn.Sequential:
    return nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 4))


@script
def ema(run: Run) -> None:
    """A deep copy of the model follows its weights; one rank alone differentiates the copy."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    net = run.wrap(model, optimizer)
    average = copy.deepcopy(model)
    for step in range(STEPS):
        inputs, targets = run.batch(step)
        optimizer.zero_grad()
        functional.mse_loss(net(inputs), targets).backward()
        optimizer.step()
        with torch.no_grad():
            for mean, p in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(p, 0.2)
        if step == STEPS // 2 and run.rank == 0:
            functional.mse_loss(average(inputs), targets).backward()
    run.models["average"] = average


@script
def swa(run: Run) -> None:
    """torch's AveragedModel and SWALR, with batch norm updated at the end."""
    model, optimizer, net = run.begin(_normed(), momentum=0.9)
    average, schedule = AveragedModel(model), SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
    torch.manual_seed(run.rank)
    for step in range(STEPS):
        run.step(net, optimizer, step)
        if step % 2:
            average.update_parameters(model)
            schedule.step()
    update_bn([run.batch(step)[0] for step in range(3)], average)
    run.models["average"] = average.module


@script
def best_so_far(run: Run) -> None:
    """The weights and the optimizer go back to an earlier state, twice."""
    model, optimizer, net = run.begin(network(), momentum=0.9)
    best: Any = None
    for step in range(2 * STEPS):
        run.step(net, optimizer, step)
        if step == 3:
            best = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        if step in (6, 11):
            model.load_state_dict(best[0])
            optimizer.load_state_dict(copy.deepcopy(best[1]))


@script
def reload(run: Run) -> None:
    """Everything is saved into a file, made anew and read from it, in the middle of the training."""
    file = io.BytesIO()
    for start in (0, STEPS // 2):
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        if start:
            file.seek(0)
            saved = torch.load(file, weights_only=False)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        net = run.wrap(model, optimizer)
        sync = run.syncs.get("net")
        if start and sync is not None:
            sync.load_state_dict(saved["sync"])
        for step in range(start, start + STEPS // 2):
            inputs, targets = run.batch(step)
            functional.mse_loss(net(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
        file.seek(0)
        torch.save(
            {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "sync": None if sync is None else sync.state_dict(),
            },
            file,
        )


@script
def evaluation(run: Run) -> None:
    """The model is evaluated between backward and step, and one rank alone asks for a gradient of its inputs."""
    model, optimizer, net = run.begin(_normed(), momentum=0.9)
    torch.manual_seed(run.rank)
    for step in range(STEPS):
        inputs, targets = run.batch(step)
        optimizer.zero_grad()
        functional.mse_loss(net(inputs), targets).backward()
        model.eval()
        with torch.no_grad():
            model(inputs)
        if run.rank == 0:
            seen = inputs.clone().requires_grad_(True)
            torch.autograd.grad(model(seen).sum(), seen)
        model.train()
        optimizer.step()
