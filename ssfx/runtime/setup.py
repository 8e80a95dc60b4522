"""What is settled before the first step: options, the model on every rank, the memory's demands; buffers after each.

torch DDP sends all buffers before a forward pass. Here those that may have changed go with the exchange, in which every
rank takes part, so that a rank may skip a batch or evaluate alone. What the next forward pass reads is the same:
running statistics of BatchNorm are those of rank 0 on all ranks, as with DDP.
"""

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ssfx.collectives.comm import Comm
from ssfx.compressors import Compressor, build
from ssfx.compressors.blank import blank_batch, run
from ssfx.compressors.memories import Memory, memories
from ssfx.compressors.memories.base import check_chosen_memory, check_pair
from ssfx.core.errors import ConfigError
from ssfx.runtime.checks import Optimizers, check_agreed
from ssfx.runtime.parted import fingerprint
from ssfx.schemes import Scheme

_log = logging.getLogger("ssfx")
_WARM_SHAPE = (8, 8)


def model_device(model: torch.nn.Module) -> torch.device:
    """Return the one device all trainable parameters are on; ConfigError if there are several, or no parameters."""
    devices = {p.device for p in model.parameters() if p.requires_grad}
    if not devices:
        raise ConfigError("the model has no trainable parameters")
    if len(devices) > 1:
        raise ConfigError(f"parameters are on several devices ({', '.join(map(str, devices))}); put them on one")
    return devices.pop()


def choose_memory(
    compressor: str | None, memory: str | None, optimizers: Optimizers, usual: str | None = None
) -> Memory | None:
    """Return the memory for a compressor: the one asked for, or where error feedback is sound the `usual` one.

    None: residual. Where it is not sound there is none.
    """
    if compressor is None:
        if memory not in (None, "none"):
            raise ConfigError(f"memory={memory} has no effect without a compressor; drop it or choose compressor=topk")
        return None
    built = build(compressor)
    if memory is None:
        memory = (usual or "residual") if built.error_feedback and not built.lossless else "none"
    kept = memories.build(memory)
    check_pair(kept, built)
    check_momentum(kept, optimizers)
    return kept


def check_momentum(memory: Memory, optimizers: Optimizers) -> None:
    """Raise ConfigError for an optimizer with momentum where the memory applies momentum itself."""
    if not memory.forbids_optimizer_momentum:
        return
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        if group.get("momentum") or "betas" in group:
            raise ConfigError(
                f"memory={memory.name} applies momentum itself, so the optimizer must not; "
                "use SGD with momentum=0, or memory=residual"
            )


def memory_of(
    entry: Scheme, compressor: str | None, memory: str | None, optimizers: Optimizers, usual: str | None = None
) -> Memory | None:
    """Return the memory of a scheme: that of its compressor, or residual where it chooses compressors itself."""
    if compressor is not None or not entry.chooses:
        return choose_memory(compressor, memory, optimizers, usual)
    kept = memories.build(memory or "residual")
    check_chosen_memory(entry.name, kept)
    return kept


def notice_voting_zeros(model: torch.nn.Module, compressor: str | None, rank: int) -> None:
    """Rank 0 has logged a line if a vote will move rows of an embedding that have no gradient."""
    tables = [name for name, part in model.named_modules() if isinstance(part, (nn.Embedding, nn.EmbeddingBag))]
    if rank or compressor is None or not tables:
        return
    if build(compressor).zeros_vote:
        _log.warning(
            "signsgd counts a zero gradient as positive, so rows of %s that no rank uses move in every step; "
            'compressor="signsgd(zeros=abstain)" leaves them alone, with two bits an element instead of one',
            tables[0] or "the embedding",
        )


def broadcast_model(model: torch.nn.Module, comm: Comm, source: int = 0, others: Sequence[torch.Tensor] = ()) -> None:
    """Make parameters and buffers of all ranks equal to those of rank `source`, as torch DDP does, and `others`."""
    broadcast_tensors((*model.parameters(), *model.buffers(), *others), comm, source)


def broadcast_tensors(tensors: Sequence[torch.Tensor], comm: Comm, source: int = 0) -> None:
    """Make tensors of all ranks, of the same shapes everywhere, equal to those of rank `source`."""
    with torch.no_grad():
        for tensor in tensors:
            if tensor.numel():
                written = _written_once(tensor.detach())
                whole = written.resolve_conj().resolve_neg().contiguous()
                comm.broadcast(whole.reshape(-1).view(torch.uint8), source).wait()  # gloo knows few dtypes
                written.copy_(whole)


def _written_once(tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor` with each dimension that `expand` made cut to the one element that is in memory."""
    for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def scheme_options(compressor: str | None, density: float | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options given by the user, leaving out what was not given so that the scheme's defaults apply."""
    given = dict(options)
    if compressor is not None:
        given["compressor"] = compressor
    if density is not None:
        given["density"] = density
    return given


def warm_up(compressor: Compressor, memory: Memory, device: torch.device, world_size: int) -> None:
    """One tensor of zeros has been compressed and decoded, so that every kernel is compiled.

    On a machine that never did, that takes about 20 seconds, which the first step shall not wait for.
    """
    batch = blank_batch(compressor, [[_WARM_SHAPE]], 0.5, memory, device)
    batch.world_size = world_size
    batch.grads = [torch.zeros(64, dtype=torch.float32, device=device)]
    run(batch, compressor)
    compressor.decompress_add(
        batch.payload, torch.zeros(64, dtype=torch.float32, device=device), batch.context(batch.parts[0])
    )


def average_buffers(model: nn.Module, comm: Comm) -> None:
    """Running statistics that differ between ranks are those of the mean, other buffers that differ rank 0's.

    What is not finite on a rank does not count.
    """
    buffers = [one for one in model.buffers() if one.numel()]
    if not buffers or comm.world_size == 1:
        return
    bits = torch.stack([fingerprint(one).to(comm.device) for one in buffers])
    rows = comm.all_gather(bits).wait().view(comm.world_size, -1)
    differ = (rows != rows[0]).any(0).tolist()
    changed = [one for one, other in zip(buffers, differ, strict=True) if other]
    broadcast_tensors([one for one in changed if not one.is_floating_point()], comm)
    for one in (one for one in changed if one.is_floating_point()):
        own = one.detach().double().contiguous()
        finite = torch.isfinite(own)
        share = torch.where(finite, own, 0.0) / comm.world_size  # before the sum, which may overflow
        both = torch.stack([share, finite / comm.world_size]).reshape(-1)
        mean, there = comm.all_reduce(both).wait().view(2, *own.shape)
        one.copy_(torch.where(there > 0, mean / there, own))


_SMALL = 1 << 14


class Buffers:
    """The buffers that a model has at the last look, by place: a module may put another tensor there.

    Small ones go with every exchange: torch's BatchNorm changes its own without a trace. Large ones, such as masks of
    attention, go where on any rank their bits have changed. What came is written once an optimizer has stepped, or
    before the next forward pass: until then a graph may need the values that it saved.
    """

    def __init__(self, model: torch.nn.Module, comm: Comm) -> None:
        self._model, self._comm = model, comm
        self._came: list[tuple[torch.Tensor, int, torch.Tensor]] = []
        """Buffers, their version counts when rank 0's values came, and these."""
        self._list()

    def look(self) -> None:
        """List the buffers anew, once modules came or went, or sizes changed; ConfigError where ranks' sizes differ."""
        self._list()
        kinds = zip(self._places, self._kinds, strict=True)
        facts = {f"buffer {name}": f"{tuple(shape)} of {dtype}" for (_, _, name), (shape, dtype) in kinds}
        check_agreed(
            self._comm, facts, "give it one size on all ranks, or attach with broadcast_buffers=False to exchange none"
        )

    def _list(self) -> None:
        places: dict[int, tuple[dict[str, torch.Tensor | None], str, str]] = {}
        for path, module in self._model.named_modules():
            for key, buffer in module._buffers.items():
                if buffer is not None and buffer.numel():
                    places.setdefault(id(buffer), (module._buffers, key, f"{path}.{key}".removeprefix(".")))
        self._places = list(places.values())
        self._kinds = [_kind(held.get(key)) for held, key, _ in self._places]
        self._small = [size.numel() <= _SMALL for size, _ in self._kinds]
        self._bits = self._bits_now()

    def resized(self) -> bool:
        """Return whether a buffer has another size or dtype than at the last look, which all ranks must know."""
        return any(_kind(held.get(key)) != kind for (held, key, _), kind in zip(self._places, self._kinds, strict=True))

    def _bits_now(self) -> torch.Tensor:
        large = [held.get(key) for (held, key, _), small in zip(self._places, self._small, strict=True) if not small]
        bits = [fingerprint(buffer).to(self._comm.device) for buffer in large if buffer is not None]
        return torch.stack(bits) if bits else torch.zeros(0, dtype=torch.int64)

    def exchange(self) -> None:
        """Receive rank 0's value of every buffer that may have changed; all ranks call it."""
        sent = self._small
        if len(self._bits):
            now = self._bits_now()
            flags = iter(self._comm.all_reduce((now != self._bits).float(), op="max").wait().tolist())
            self._bits, sent = now, [small or bool(next(flags)) for small in self._small]
        by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
        for (held, key, _), goes in zip(self._places, sent, strict=True):
            if goes and (buffer := held.get(key)) is not None:
                by_dtype.setdefault(buffer.dtype, []).append(buffer)
        self._came = []
        for buffers in by_dtype.values():
            whole = [
                b.detach() if _plain(b) else _written_once(b.detach()).resolve_conj().resolve_neg() for b in buffers
            ]
            flat = torch.cat([one.reshape(-1) for one in whole]).to(self._comm.device)
            self._comm.broadcast(flat.view(torch.uint8)).wait()
            if self._comm.rank != 0:
                parts = flat.split([one.numel() for one in whole])
                values = [part.view(one.shape) for part, one in zip(parts, whole, strict=True)]
                self._came += zip(buffers, map(_version, buffers), values, strict=True)

    def write(self) -> None:
        """Buffers have the values that came, unless the script has written to them since."""
        came, self._came = self._came, []
        fresh = [(buffer, values) for buffer, version, values in came if _version(buffer) == version]
        # By `.data`, so that a graph that saved the old values goes on without an error, as with torch DDP.
        plain = [(buffer.data, values) for buffer, values in fresh if _plain(buffer)]
        if plain:
            torch._foreach_copy_([data for data, _ in plain], [values for _, values in plain])
        for buffer, values in fresh if len(plain) < len(fresh) else ():
            if not _plain(buffer):
                with torch.inference_mode(buffer.is_inference()):
                    _written_once(buffer.data).copy_(values)
        if any(buffer.numel() > _SMALL for buffer, _ in fresh):
            self._bits = self._bits_now()


def _kind(buffer: torch.Tensor | None) -> tuple[torch.Size, torch.dtype | None]:
    return (buffer.shape, buffer.dtype) if buffer is not None else (torch.Size(), None)


def _plain(buffer: torch.Tensor) -> bool:
    return buffer.is_contiguous() and not (buffer.is_conj() or buffer.is_neg() or buffer.is_inference())


def _version(buffer: torch.Tensor) -> int:
    return -1 if buffer.is_inference() else buffer._version
