"""Whether two checkouts plan, compress and train alike at their defaults: digests of one, or how two differ.

    PYTHONPATH=. python benchmarks/compare_trees.py digests.json           # in each of two checkouts
    python benchmarks/compare_trees.py before.json after.json              # exit code 1 where anything differs

Plans are those of all schemes for MODELS on CLUSTERS, with their price; payloads those of all compressors over STEPS
steps at DENSITIES, compiled and in plain torch, with every memory that goes with them; weights are those of a small
network that RANKS virtual ranks have trained. A change that shall leave behaviour alone leaves all digests alone.
"""

import hashlib
import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

import ssfx
from ssfx.compressors import build, compressors
from ssfx.compressors.blank import blank_batch, run
from ssfx.compressors.kernels import plain_torch
from ssfx.compressors.memories import memories
from ssfx.config.plans import plan_of, resolve_plan
from ssfx.core.errors import ConfigError
from ssfx.core.origin import Origin
from ssfx.planning.costs import Costs, Curve, ring_exchange
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile
from ssfx.runtime.virtual_ranks import virtual_ranks
from ssfx.schemes import schemes
from ssfx.schemes.transport import keeps_fraction
from ssfx.simulator.pricing.timeline import evaluate

MODELS = ("resnet50", "vgg16_cifar10", "lstm_wikitext2", "bert_large")
CLUSTERS = ("64gpu", "acpsgd_10gbe", "micro", "s2reducer_1gbe", "box")
RULES = ("espresso", "hipress", "omgs", "ssfusion_i", "ssfusion_naive", "ssfusion_o", "ssfusion_oi")
"""Schemes whose paper's own rule is asked for, too."""
DENSITIES, STEPS, RANKS = (0.001, 0.01, 0.3), 12, 4
SEGMENTS: tuple[tuple[tuple[int, ...], ...], ...] = (((70, 1000),), ((5,),), ((60, 50), (7,)), ((999,),))
TRAINED_STEPS = 6
PRICES_AGREE = 1e-9


def digest(*parts: Any) -> str:
    """Return 16 letters that stand for tensors and what else has a representation."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part.numpy().tobytes() if isinstance(part, torch.Tensor) else repr(part).encode())
    return found.hexdigest()[:16]


def plans() -> dict[str, Any]:
    """Return digest, price and seconds of planning of every plan, or the error."""
    found: dict[str, Any] = {}
    asked = [(name,) for name in schemes.names()] + [(name, "scheme.rule=paper") for name in RULES]
    for model in MODELS:
        for cluster in CLUSTERS:
            for scheme, *rule in asked:
                words = [f"model={model}", f"cluster={cluster}", f"scheme={scheme}", *rule]
                try:
                    planned, began_s = resolve_plan(words), time.process_time()
                    plan, profile, costs = plan_of(planned)
                    seconds = time.process_time() - began_s
                    what = digest(plan.buckets, plan.launch_order, plan.decode, plan.overlap)
                    price_s = 0.0 if isinstance(costs, str) else evaluate(plan, profile, costs).total_s
                    found[" ".join(words)] = [what, price_s, seconds]
                except ConfigError as error:
                    found[" ".join(words)] = [f"refused: {error}", 0.0, 0.0]
    return found


def payloads() -> dict[str, Any]:
    """Return the digest of what every compressor sends and keeps, by memory, density and kernels."""
    found = {}
    for name in compressors.names():
        for memory in memories.names():
            codec, kept = build(name), memories.build(memory)
            if (kept.feedback and not codec.error_feedback) or (kept.needs_indices and not codec.sparse):
                continue
            for density in DENSITIES:
                for kernels in (nullcontext, plain_torch):
                    with kernels():
                        found[f"{name} {memory} {density} {kernels.__name__}"] = [sent(codec, kept, density), 0.0, 0.0]
    return found


def sent(codec: Any, memory: Any, density: float) -> str:
    """Return the digest of one compressor's payloads, memories and states, step by step."""
    batch, generator, parts = blank_batch(codec, SEGMENTS, density, memory), torch.Generator().manual_seed(1), []
    for step in range(STEPS):
        batch.step, batch.grads = (
            step,
            [
                torch.randn(hi - lo, generator=generator) * (1 + step % 3) * torch.rand(hi - lo, generator=generator)
                for lo, hi in batch.pieces
            ],
        )
        run(batch, codec)
        sections = (getattr(batch.payload, name) for name in ("counts", "scales", "indices", "values", "codes"))
        parts += [section.view(torch.uint8) if section.numel() else section.byte() for section in sections]
        parts += [buffer.clone() for buffer in batch.new.values()]
        parts += [buffer.clone() for state in batch.states for buffer in state.values()]
        parts = [digest(*parts)]
        if memory.stateful:
            batch.old, batch.new = {name: buffer.clone() for name, buffer in batch.new.items()}, batch.new
    return str(parts[0])


def weights() -> dict[str, Any]:
    """Return the digest of a small network's weights after training by every scheme."""
    found = {}
    for scheme in schemes.names():
        for ranks in (RANKS, RANKS - 1):
            options: dict[str, Any] = (
                {"scheme": scheme, "tables": "*weight"} if scheme == "parallax" else {"scheme": scheme}
            )
            if keeps_fraction(getattr(schemes[scheme].defaults, "compressor", None) or "fp16"):
                options["density"] = 0.05
            found[f"{scheme} on {ranks}"] = [trained(ranks, options), 0.0, 0.0]
    return found


def trained(ranks: int, options: dict[str, Any]) -> str:
    """Return the digest of rank 0's weights after TRAINED_STEPS steps on a network so slow that compression pays."""
    origin, call = Origin("nominal", note="a slow network"), Curve.affine(1e-5, 0)
    costs = Costs(ranks, call, call, call, ring_exchange(ranks, 2e-5, 1e-5), origin)

    def train(rank: int, comm: Any) -> str:
        torch.manual_seed(0)
        layers = (torch.nn.Linear(200, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64), torch.nn.Linear(64, 10))
        model = torch.nn.Sequential(*layers)
        named = reversed(list(model.named_parameters()))
        tensors = tuple(TensorSpec(name, tuple(parameter.shape)) for name, parameter in named)
        profile = Profile("small", tensors, (1e-4,) * len(tensors), 1e-4, origin)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        sync = ssfx.attach(model, optimizer, comm=comm, costs=costs, profile=profile, **options)
        torch.manual_seed(rank + 1)
        for _ in range(TRAINED_STEPS):
            inputs = torch.randn(16, 200)
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
        sync.detach()
        return digest(*(parameter.detach() for parameter in model.parameters()))

    return str(virtual_ranks(train, ranks)[0])


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print what differs, and the processor seconds of plans; return how many entries of both do."""
    differ = 0
    for name in sorted(before.keys() & after.keys()):
        (old, old_s, _), (new, new_s, _) = before[name], after[name]
        if old != new or abs(old_s - new_s) > PRICES_AGREE * max(old_s, new_s):
            differ += 1
            print(f"{name}: {old} {old_s:.9g} s, then {new} {new_s:.9g} s")
    for where, more in (("before", before.keys() - after.keys()), ("after", after.keys() - before.keys())):
        if more:
            print(f"only {where}: {len(more)}, of {', '.join(sorted({name.partition(' ')[0] for name in more}))}")
    shared = before.keys() & after.keys()
    slowest = max(shared, key=lambda name: after[name][2])
    old_s, new_s = (sum(one[name][2] for name in shared) for one in (before, after))
    print(f"{differ} of {len(shared)} differ; planning took {old_s:.1f} s, then {new_s:.1f} s (processor)")
    print(f"longest: {slowest}: {before[slowest][2]:.2f} s, then {after[slowest][2]:.2f} s")
    return differ


def main(files: list[str]) -> int:
    """Write the digests of this checkout to one file, or compare two."""
    if len(files) == 2:
        return min(1, compare(*(json.loads(Path(name).read_text()) for name in files)))
    torch.set_num_threads(1)
    found = payloads() | weights() | plans()
    Path(files[0]).write_text(json.dumps(found, indent=0))
    print(f"{len(found)} digests in {files[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
