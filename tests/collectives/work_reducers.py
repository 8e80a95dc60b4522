"""What the pool's ranks run to try a reducer: some steps of error feedback around it, and one report a step."""

from dataclasses import dataclass
from typing import Any

import torch
from runtime.ranks import comm_of

from ssfx.collectives import Reducer, Reduction, Traffic, collectives
from ssfx.compressors import build
from ssfx.compressors.sparse import top_k


@dataclass
class Step:
    """One step on one rank: the dense sum, what is kept, the reducer's state, traffic as counted and as described."""

    total: torch.Tensor
    indices: list[int] | None
    residual: torch.Tensor
    sent: int
    state: dict[str, torch.Tensor]
    counted: Traffic
    described: Traffic


def steps(
    group: Any,
    rank: int,
    world: int,
    spec: str | Reducer,
    grads: list[list[list[float]]],
    kept: int,
    residual: list[list[float]] | None = None,
    state: dict[str, Any] | None = None,
    compressor: str = "qsgd(norm=max)",
) -> list[Step]:
    """Feed grads[step][rank] through a reducer with plain error feedback; `state` replaces parts of the initial one.

    Reducers that do not select get the `kept` largest elements of the accumulated gradient (fewer if it has fewer),
    and those that quantise a `compressor`.
    """
    reducer, comm = collectives.build(spec) if isinstance(spec, str) else spec, comm_of(group)
    assert isinstance(reducer, Reducer)
    numel = len(grads[0][0])
    own = reducer.initial_state(numel, world)
    assert set(own) == set(reducer.state_names)
    for name, value in (state or {}).items():
        own[name].copy_(torch.as_tensor(value))
    kept_back = torch.tensor(residual[rank]) if residual else torch.zeros(numel)
    reports = []
    for step, rows in enumerate(grads):
        vector = kept_back + torch.tensor(rows[rank], dtype=torch.float32)
        work = Reduction(vector, kept, step, 0, own)
        work.bad = not bool(torch.isfinite(vector).all())
        if reducer.quantizes:
            work.compressor = build(compressor)
        if not reducer.selects:
            work.indices = top_k(vector, min(kept, numel))
            work.values = vector[work.indices]
            vector[work.indices] = 0
        before = comm.sent
        reduced = reducer.reduce(work, comm)
        counted = Traffic(comm.sent.messages - before.messages, comm.sent.sent_bytes - before.sent_bytes)
        total = torch.zeros(numel)
        if reduced.indices is None:
            total.copy_(reduced.values)
        else:
            assert reduced.indices.unique().numel() == reduced.indices.numel()
            total[reduced.indices] = reduced.values
        positions = None if reduced.indices is None else reduced.indices.tolist()
        copied = {name: value.clone() for name, value in own.items()}
        kept_back = vector
        reports.append(Step(total, positions, vector.clone(), reduced.sent, copied, counted, reduced.traffic))
    return reports
