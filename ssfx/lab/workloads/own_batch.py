"""A function of the user's that returns a model and a batch: timed on this machine, or counted for another device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.utils._pytree import tree_leaves, tree_map

from ssfx.core import accelerator
from ssfx.core.case import Case, ClusterChoice
from ssfx.core.errors import ConfigError, SsfxError
from ssfx.core.files import write_json
from ssfx.core.origin import Origin
from ssfx.core.user_code import own_code
from ssfx.lab.workloads.analytic import count_work, first_pass, trace_of, work_of
from ssfx.lab.workloads.base import BATCH_SIZE
from ssfx.lab.workloads.catalog.synthetic import Pool
from ssfx.lab.workloads.declarations import Model
from ssfx.lab.workloads.objective import cross_entropy
from ssfx.lab.workloads.profiling import Loop, profile_of, specs, trained
from ssfx.lab.workloads.samples import sample_of
from ssfx.lab.workloads.step import make_optimizer
from ssfx.lab.workloads.tracing import Trace, Work, autocast_regions
from ssfx.perf_model.devices import SIXTEEN_BIT, Device
from ssfx.perf_model.devices import device as data_sheet
from ssfx.perf_model.roofline import BACKWARD, FORWARD, PASSES, around, eager, row_s, update_s
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import InPrecision, Profile

Loss = Callable[[nn.Module, Any], Tensor]


@dataclass(frozen=True)
class OwnBatch:
    """What a function of the user's returned: a model, one batch for it, and how its loss is computed from both."""

    name: str
    """The function, as it was written, and the digest of its file."""
    model: nn.Module
    batch: Any
    loss: Loss

    @property
    def batch_size(self) -> int:
        """Samples of the batch: the first dimension of its first tensor."""
        plain = dict(self.batch) if isinstance(self.batch, Mapping) else self.batch
        return next((len(leaf) for leaf in tree_leaves(plain) if isinstance(leaf, Tensor) and leaf.ndim), 1)

    def built(self, device: str) -> OwnBatch:
        """Return the same on a device, after a forward pass there, in which a lazy model builds the rest of itself.

        ConfigError where no parameter is trained then.
        """
        model = to_meta(self.model) if device == "meta" else self.model.to(device)
        moved = OwnBatch(self.name, model, batch_to(self.batch, device), self.loss)
        if device == "meta":
            first_pass(moved.one_loss)
        else:
            moved.one_loss()
        if not trained(moved.model):
            raise ConfigError(f"{self.name.partition('#')[0]}: no parameter of the model is trained")
        return moved

    def one_loss(self) -> Tensor:
        """Return the loss of the batch; ConfigError when the model cannot take it."""
        try:
            found = self.loss(self.model, self.batch)
        except Exception as error:
            reason = " ".join(str(error).split())
            raise ConfigError(f"{self.name}: the model fails on its batch: {type(error).__name__}: {reason}") from error
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise ConfigError(f"{self.name}: the loss must be a tensor of one number, and is a {type(found).__name__}")
        return found


def own_batch(name: str) -> OwnBatch:
    """Return what the function `name` returns: (model, batch) or (model, batch, loss), where loss(model, batch).

    A model alone has made-up samples where the file says of what shape, `name.sample = (3, 32, 32)`, and their loss.
    Without a loss, the model is called with the batch (a tuple's items as arguments, a dict's as keywords), and what it
    returns as `loss`, or else the mean of all numbers that it returns, is the loss: the time of a backward pass hardly
    depends on it. ConfigError when the function fails or returns anything else.
    """
    code = own_code(name)
    plain = code.name.partition("#")[0]
    try:
        made = code.load()()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{plain} fails: {type(error).__name__}: {' '.join(str(error).split())}") from error
    if isinstance(made, nn.Module) and "sample" in code.says:
        pool = Pool(sample_of(name), 0, code.says.get("batch_size", BATCH_SIZE), 0, "cpu")
        made = made, pool[0], lambda model, batch: cross_entropy(model, *batch)
    if isinstance(made, nn.Module):
        raise ConfigError(
            f"{plain} returns a model without a batch; return (model, batch), or say {code.function}.sample = (3, 32, "
            f"32) below it, or measure it with a data set: ssfx profile model={plain} dataset=NAME"
        )
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], nn.Module):
        raise ConfigError(f"{plain} must return (model, batch) or (model, batch, loss), and returns a {_kind(made)}")
    loss = made[2] if len(made) == 3 else _own_loss
    if not callable(loss):
        raise ConfigError(f"{plain}: the third thing it returns must be a function loss(model, batch)")
    return OwnBatch(code.name, made[0].train(), made[1], loss)


def timed_batch(name: str, device: str, optimizer: str = "sgd", iterations: int = 20, warmup: int = 5) -> Profile:
    """Return the profile of an own model on `device` (cpu or cuda), each time the median over iterations, one rank."""
    own = own_batch(name).built(device)
    case = Case(
        "profile",
        own.name,
        "",
        "ddp",
        ClusterChoice("local"),
        1,
        own.batch_size,
        device="cuda" if device == "cuda" else "cpu",
        optimizer=optimizer,
        lr=1e-9,
    )
    loop = Loop(
        own.model, make_optimizer(case, own.model), lambda _: None, lambda _: own.one_loss(), torch.device(device)
    )
    every = [loop.run(number) for number in range(warmup + iterations)][warmup:]
    threads = torch.get_num_threads()
    note = (
        f"ssfx profile {name}: median of {iterations} iterations after {warmup}, one process, {threads} "
        f"thread{'s' * (threads > 1)}; step: {optimizer}; data loading is left out"
    )
    return profile_of(case, own.model, every, accelerator.names(device)[:1], note)


def counted_batch(name: str, on: str, optimizer: str = "sgd", precision: str = "fp32") -> Profile:
    """Return the nominal profile of an own model on device `on`, from the operators of one step on its batch.

    They are counted on torch's meta device, which computes nothing; each takes what the roofline says, in the precision
    of the region of autocast that it is in, or in `precision` outside of all. The times in the other precisions of the
    device are kept with it. ConfigError for a model that looks at the values of its data, which that device does not
    have, and for a precision that `on` does not have.
    """
    target = data_sheet(on)
    on = target.name
    target.at(precision)
    with autocast_regions() as regions:
        returned = own_batch(name)
        try:
            own = returned.built("meta")
            trace = trace_of(own.model, own.one_loss, all_have=False, regions=regions)
        except ConfigError as error:
            raise ConfigError(f"{error}; so it cannot be counted for {on}: measure it where such a device is") from None
        except (RuntimeError, NotImplementedError) as error:
            raise ConfigError(f"{name} cannot be counted: {' '.join(str(error).split())}") from None
    times = {one: _times(name, own, trace, target, optimizer, one) for one in ("fp32", *target.tensor_flops)}
    asked = times.pop(precision)
    origin = Origin("nominal", target.title, "", asked.note, {"torch": torch.__version__})
    return Profile(
        own.name,
        specs(own.model, trace.order),
        asked.ready_gap_s,
        asked.forward_s,
        origin,
        own.batch_size,
        on,
        step_s=asked.step_s,
        optimizer=optimizer,
        precision=precision,
        in_other=times,
        host_bound=asked.host_bound,
    )


def counted_twice(name: str) -> tuple[int, str, str, nn.Module, tuple[Trace, Trace]]:
    """Return batch size, inputs, optimizer, model and traces of an own function on its batch and one twice as large.

    The optimizer is what the file says, `function.optimizer = "adamw"`, or sgd. ConfigError as for counted_batch.
    """
    said = str(own_code(name).says.get("optimizer", "sgd"))
    with autocast_regions() as regions:
        own = own_batch(name).built("meta")
        size = own.batch_size

        def twice(leaf: Any) -> Any:
            return torch.cat([leaf, leaf]) if isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == size else leaf

        double = replace(own, batch=tree_map(twice, own.batch))
        small, large = (trace_of(one.model, one.one_loss, all_have=False, regions=regions) for one in (own, double))
    if region := next((one for every in small.by_precision.values() for one in every if one), ""):
        plain = name.partition("#")[0]
        raise ConfigError(
            f"{plain} computes in {region} where it says so: ssfx profile {plain} --on DEVICE --out mine.json counts "
            "that; then ask with profile=mine.json"
        )
    return size, f"the batch of {name.partition('#')[0]}", said, own.model, (small, large)


def _times(name: str, own: OwnBatch, trace: Trace, target: Device, optimizer: str, precision: str) -> InPrecision:
    """Return what the operators of `trace` take on a device, in `precision` where they are in no region of autocast."""
    params = trained(own.model)
    weights_bytes = sum(p.numel() * p.element_size() for p in params.values())
    busy: dict[tuple[str, str], float] = {}
    kernels: dict[tuple[str, str], float] = {}
    for (passed, key), every in trace.by_precision.items():
        inside = [(_inside(region, precision), work) for region, work in every.items()]
        narrow = next((one for one, _ in inside if one in SIXTEEN_BIT), "fp32")
        shape = params[key].shape if key in params else ()
        busy[passed, key] = sum(_seconds(work, target.at(one)) for one, work in inside)
        kernels[passed, key] = around(shape, narrow, PASSES.index(passed)) + sum(work.kernels for _, work in inside)
    regions = sorted({region for every in trace.by_precision.values() for region in every if region})
    said = f", {' and '.join(regions)} where the model says so" if regions else ""
    computing = target.at(precision)
    update = update_s(optimizer, weights_bytes, (p.shape for p in params.values()), computing)
    (forward, *backward, update), bound = eager(
        [*_parts(busy, trace.order), update], [*_parts(kernels, trace.order), 0.0], computing
    )
    note = (
        f"roofline, not measured: operators of one step on the batch of {name}, counted on the meta device, at "
        f"{computing.efficiency}; {computing.assumption}{said}; {computing.source}; step: {optimizer}; data loading is "
        f"left out{bound}"
    )
    return InPrecision(tuple(round(one, 9) for one in backward), round(forward, 9), round(update, 9), note, bool(bound))


def _parts(counted: Mapping[tuple[str, str], float], order: Sequence[str]) -> list[float]:
    """Return what forward has of something, and the gradient of each tensor in backward."""
    forward = sum(count for (passed, _), count in counted.items() if passed == PASSES[FORWARD])
    return [forward, *(counted.get((PASSES[BACKWARD], key), 0.0) for key in order)]


def _inside(region: str, outside: str) -> str:
    """Return the precision of operators in a region of autocast, "" for none, where `outside` is that of the others."""
    if region == "fp32":
        return "tf32" if outside == "tf32" else "fp32"
    return outside if not region or outside == "fp8" else region


def ready_order(name: str) -> tuple[TensorSpec, ...]:
    """Return the trained tensors of an own model in the order in which one backward pass makes their gradients ready.

    Tensors without a gradient are left out. The pass is on the meta device, which computes nothing, or on the CPU for a
    model that looks at the values of its data.
    """
    try:
        return _ready_order(name, "meta")
    except (ConfigError, RuntimeError, NotImplementedError):
        return _ready_order(name, "cpu")


def _ready_order(name: str, device: str) -> tuple[TensorSpec, ...]:
    own = own_batch(name).built(device)
    order: list[str] = []
    for key, p in trained(own.model).items():
        p.register_post_accumulate_grad_hook(lambda _, key=key: order.append(key))
    with torch.device(device):
        own.one_loss().backward()
    return specs(own.model, order)


def _own_loss(model: nn.Module, batch: Any) -> Tensor:
    if isinstance(batch, Mapping):
        out = model(**batch)
    else:
        out = model(*batch) if isinstance(batch, tuple | list) else model(batch)
    said = out.get("loss") if isinstance(out, Mapping) else getattr(out, "loss", None)
    if isinstance(said, Tensor):
        return said
    floats = [leaf.float().mean() for leaf in tree_leaves(out) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    if not floats:
        raise TypeError("the model returns no numbers")
    return torch.stack(floats).sum()


def _seconds(work: Work, target: Device) -> float:
    still = (work.conv_still, work.matmul_still, work.other_still)
    every = (work.conv_bytes, work.matmul_bytes, work.other_bytes)
    moved = [most - part for most, part in zip(every, still, strict=True)]
    return row_s((work.kernels, work.conv_flops, work.matmul_flops, *moved, *still), target, 1)


def _kind(made: Any) -> str:
    return f"tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__


_REGISTERED = ("_parameters", "_buffers", "_modules")


def to_meta(model: nn.Module) -> nn.Module:
    """Parameters, buffers and plain tensors of `model` are on the meta device from now on; returns the model.

    A tensor that stands in several places is a single one afterwards too, which `Module.to("meta")` does not keep: it
    would untie the weights of a language model's head.
    """
    moved: dict[int, tuple[Tensor, Tensor]] = {}  # with the original, whose id must not be used again

    def move(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if id(leaf) not in moved:
            moved[id(leaf)] = (leaf, _moved(leaf))
        return moved[id(leaf)][1]

    for module in model.modules():
        for named in (module._parameters, module._buffers):
            for name, tensor in named.items():
                named[name] = move(tensor)
        for name, value in list(module.__dict__.items()):
            if name not in _REGISTERED and any(isinstance(leaf, Tensor) for leaf in tree_leaves(value)):
                module.__dict__[name] = tree_map(move, value)
    return model


def batch_to(batch: Any, device: str) -> Any:
    """Return a batch on another device: tensors, and every object that can move itself, wherever they stand in it."""
    if isinstance(batch, Mapping) and not isinstance(batch, dict) and not hasattr(batch, "to"):
        batch = dict(batch)
    return tree_map(lambda leaf: leaf.to(device) if hasattr(leaf, "to") else leaf, batch)


def _moved(tensor: Tensor) -> Tensor:
    for kind in (UninitializedParameter, UninitializedBuffer):
        if isinstance(tensor, kind):
            build: Any = kind  # the stubs have the arguments of the class above it
            return build(tensor.requires_grad, "meta", tensor.dtype)  # type: ignore[no-any-return]
    there = tensor.detach().to("meta")
    return nn.Parameter(there, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else there


def main(name: str, target: str) -> None:
    """Count the work of an own function, of either kind, and write it to a file."""
    code = own_code(name)
    try:
        if "sample" in code.says:
            work = count_work(name)
        else:
            batch_size, inputs, optimizer, model, traces = counted_twice(name)
            work = work_of(Model(name, "", inputs, lambda: model, batch_size, ""), model, optimizer, *traces)
        write_json(Path(target), replace(work, model=code.name).to_json())
    except SsfxError as error:
        sys.exit(" ".join(str(error).split()))
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        text = " ".join(str(error).split())
        sys.exit(f"{text}; measure it with ssfx profile {name.partition('#')[0]} --out mine.json")


if __name__ == "__main__":
    main(*sys.argv[1:])
