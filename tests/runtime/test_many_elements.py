"""Tensors with more elements than a 16-bit float counts, or a 32-bit one: every compressor, by every way it travels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args, get_type_hints

import pytest
import torch
from plan.instances import affine_costs, make_profile
from plan.options import usual
from runtime.cases import BIASED, SPARSE, Options, ident

import ssfx
from ssfx.collectives import Reducer, collectives
from ssfx.collectives.comm import Comm
from ssfx.compressors import Context, Payload, build, compressors
from ssfx.compressors.sparse import ValueDtype
from ssfx.core.errors import ConfigError
from ssfx.runtime.message import all_finite
from ssfx.runtime.message_layout import MessageLayout
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.transport import keeps_fraction
from ssfx.simulator.pricing.message_sizes import lane_bytes

DTYPES = get_args(ValueDtype)
BEYOND_16_BITS = (60_000, 70_000)
"""Positions below and above the largest float16."""
BEYOND_24_BITS = (1 << 24) + 1002
"""Above 2^24 float32 knows every second whole number."""
ON_THE_WAY = [
    name for name in SPARSE if any(issubclass(collectives[one].cls, Reducer) for one in schemes[name].collectives)
]


def specs() -> Iterator[str]:
    """Yield every registered compressor in all value dtypes, also with what makes its payloads add up, or not."""
    for entry in compressors:
        hints = get_type_hints(type(entry.options))
        switches = [name for name, hint in hints.items() if hint is bool]
        for changed in ({}, *({name: not getattr(entry.options, name)} for name in switches)):
            try:
                replace(entry.options, **changed)
            except ValueError:
                continue  # a switch of another mode
            ways = build(compressors.canonical(entry.name, changed)).additive
            if changed and ways == build(entry.name).additive:
                continue
            for dtype in DTYPES if "value_dtype" in hints else (None,):
                yield compressors.canonical(entry.name, changed | ({"value_dtype": dtype} if dtype else {}))


def cases() -> Iterator[Options]:
    """Yield options for `attach`: every compressor gathered or summed, and every scheme that sums on the way."""
    for spec in specs():
        density = {"density": 0.01} if keeps_fraction(spec) else {}
        for sizes in ({}, {"sizes": "variable"}):
            yield {"scheme": "per_tensor", "compressor": spec, **density, **sizes}
    for name in ON_THE_WAY:
        for spec in [usual(name).get("compressor"), *(f"topk(value_dtype={dtype})" for dtype in DTYPES[1:])]:
            yield {"scheme": name, **usual(name), **({"compressor": spec} if spec else {})}


def allowed(options: Options) -> bool:
    """Return whether no line refuses these options."""
    given = {key: value for key, value in options.items() if key != "scheme"}
    try:
        make_plan(options["scheme"], make_profile([70_000], [1e-3]), affine_costs(2), given)
    except ConfigError:
        return False
    return True


CASES = [options for options in cases() if allowed(options)]


def test_every_compressor_and_value_dtype_is_tried() -> None:
    tried = {build(options["compressor"]) for options in CASES if "compressor" in options}
    assert {one.name for one in tried} == {one.name for one in compressors}
    assert len([one for one in tried if getattr(one.options, "value_dtype", "") == "float16"]) > 8
    assert {one.additive for one in tried} == {True, False}


@pytest.mark.parametrize("numel", BEYOND_16_BITS)
@pytest.mark.parametrize("options", CASES, ids=ident)
def test_finite_gradients_arrive_as_finite_averages(options: Options, numel: int) -> None:
    def train(rank: int, comm: Comm) -> tuple[int, torch.Tensor, torch.Tensor, torch.Tensor]:
        weight = torch.nn.Linear(numel, 1, bias=False)
        optimizer = torch.optim.SGD(weight.parameters(), lr=0.1)
        sync = ssfx.attach(weight, optimizer, comm=comm, **options, costs=affine_costs(2))
        given, sent = torch.zeros(numel), torch.zeros(numel)
        for step in range(3):
            gradient = torch.randn(numel, generator=torch.Generator().manual_seed(2 * step + rank))
            gradient[-1 - step] = 100.0 + rank  # found by whatever keeps the largest, at the highest positions
            optimizer.zero_grad()
            weight(gradient[None]).sum().backward()
            given += gradient
            sent += weight.weight.grad[0]
            optimizer.step()
        kept = sync.store.get("weight", "residual")
        return sync.skipped_steps, given, sent, torch.zeros(numel) if kept is None else kept.view(-1).clone()

    (skipped, first, sent, left), (_, second, other_sent, other_left) = ssfx.virtual_ranks(train, 2)
    assert skipped == 0
    assert torch.equal(sent, other_sent)
    assert bool(torch.isfinite(sent).all())
    assert bool(sent.any())
    if left.any() and options["scheme"] not in BIASED:  # nothing is lost but by rounding: what was not sent was kept
        assert float((first + second - left - other_left - 2 * sent).abs().max()) < 2.0


@pytest.mark.parametrize("spec", [spec for spec in specs() if build(spec).sparse or build(spec).rounds == 2])
def test_the_highest_odd_position_is_sent_and_found(spec: str) -> None:
    numel, place = BEYOND_24_BITS, BEYOND_24_BITS - 1
    compressor, a = build(spec), torch.zeros(numel)
    a[place] = 2.0
    density = 64 / numel
    payload = Payload.allocate(compressor.layout(numel, density))
    ctx = Context(
        0, 0, 0, 1, density, state={n: torch.zeros(s) for n, s in compressor.state_shapes([(numel,)]).items()}
    )
    if compressor.rounds == 2:
        compressor.propose(a, payload, ctx)
    compressor.compress(a, payload, ctx)
    out = torch.zeros(numel)
    compressor.decompress_add(payload, out, ctx)
    if "random" in spec:  # which may miss it
        assert not out[:place].any()
    elif compressor.name in ("powersgd", "acpsgd"):  # of no positions: the product of two matrices
        assert bool(torch.isfinite(out).all())
    else:
        assert out.nonzero().tolist() == [[place]]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", sorted(set(ON_THE_WAY) - BIASED))
def test_the_highest_odd_position_is_summed_on_the_way(scheme: str) -> None:
    def train(rank: int, comm: Comm) -> torch.Tensor:
        weight = torch.nn.Parameter(torch.zeros(BEYOND_24_BITS))
        model = torch.nn.ParameterList([weight])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        options = {**usual(scheme), **({"density": 1e-6} if "density" in usual(scheme) else {})}
        ssfx.attach(model, optimizer, scheme, comm=comm, costs=affine_costs(2), **options)
        (weight[-1 - 2 * rank] * 2).backward()
        optimizer.step()
        return weight.detach().nonzero().view(-1)

    for moved in ssfx.virtual_ranks(train, 2):
        assert {BEYOND_24_BITS - 1, BEYOND_24_BITS - 3}.intersection(moved.tolist())
        assert set(moved.tolist()) <= {BEYOND_24_BITS - 1, BEYOND_24_BITS - 3}


@pytest.mark.parametrize("spec", specs())
def test_messages_above_2_to_the_31_bytes_are_laid_out_as_planned(spec: str) -> None:
    options: dict[str, Any] = {"compressor": spec} | ({"density": 0.3} if keeps_fraction(spec) else {})
    profile = make_profile([1_500_000_000, 500_000_001], [1e-3, 1e-3])
    plan = make_plan("fused_all", profile, affine_costs(2), options)
    for _, lane in plan.lanes():
        layout = MessageLayout(lane, plan)
        assert layout.nbytes == lane_bytes(plan, lane)
        sections = sorted(
            (s.offset, s.length * s.dtype.itemsize)
            for s in (
                layout.first,
                layout.counts,
                layout.scales,
                layout.indices,
                layout.values,
                layout.codes,
                layout.dense,
            )
        )
        assert all(lo + size <= end for (lo, size), (end, _) in pairwise(sections))
        assert sum(size for _, size in sections) == layout.nbytes
    with pytest.raises(ConfigError, match="indices have 32 bits"):
        make_plan("fused_all", make_profile([1_500_000_000] * 2, [1e-3] * 2), affine_costs(2), options)


def test_integers_are_finite_beside_16_bit_numbers() -> None:
    assert bool(all_finite([torch.ones(2, dtype=torch.float16), torch.tensor([1 << 30])]))
    assert not bool(all_finite([torch.tensor([1.0, float("inf")], dtype=torch.float16), torch.tensor([1 << 30])]))
    assert bool(all_finite([torch.tensor([1 << 30])]))
