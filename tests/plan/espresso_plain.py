"""Espresso's algorithms written out, step by step and by trying everything: what the searches are compared with."""

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from plan.instances import make_profile, random_costs, random_instance, random_table

from ssfx.planning.costs import Costs
from ssfx.planning.profile import Profile
from ssfx.schemes.search.espresso_search import TICK_S, EspressoTimeline, EspressoWork


def works(profile: Profile, costs: Costs, density: float = 0.01) -> list[EspressoWork]:
    """The costs of none, gpu_ag and gpu_div by the formulas of D-51; on the host both become cpu_ag."""
    n = np.array(profile.numel, dtype=float)
    q = np.array([8.0 * max(1, int(density * size + 1e-6)) for size in profile.numel])
    p, encode, decode, host = costs.world_size, costs.encode.many(n), costs.decode.many(n), costs.host.many(n)
    none = costs.exchange_many_s("all_reduce", 4 * n)
    gather = costs.exchange_many_s("all_gather", q) + decode
    divided = costs.exchange_many_s("all_to_all", q) + costs.exchange_many_s("all_gather", q / p)
    divided += costs.decode.many(n / p) + costs.encode.many(n / p) + decode
    never = np.full(len(n), np.inf)
    return [
        EspressoWork(np.zeros(len(n)), none, never, none),
        EspressoWork(encode, gather, host, gather),
        EspressoWork(encode, divided, host, gather),
    ]


def simulated(
    gap_s: Sequence[float], options: list[EspressoWork], chosen: Sequence[int], host: Sequence[int] = ()
) -> tuple[float, int, list[tuple[float, float]], list[int]]:
    """The timeline of D-51 step by step: (F, last tensor with a bubble in front, messages' spans, order)."""
    gpu = cpu = 0.0
    ready = []
    for i, option in enumerate(chosen):
        gpu += gap_s[i]
        if i in host:
            cpu = max(gpu, cpu) + options[option].host[i]
            ready.append(cpu)
        else:
            gpu += options[option].encode[i]
            ready.append(gpu)
    order = sorted(range(len(chosen)), key=lambda i: (ready[i], i))
    end, bubble, spans = 0.0, 0, [(0.0, 0.0)] * len(chosen)
    for i in order:
        work = options[chosen[i]]
        if ready[i] >= end - TICK_S:
            bubble = i
        start = max(end, ready[i])
        end = start + (work.host_network[i] if i in host else work.network[i])
        spans[i] = (start, end)
    return max(end, gpu), bubble, spans, order


def selected(gap_s: Sequence[float], numel: Sequence[int], options: list[EspressoWork]) -> list[int]:
    """Algorithm 1 with a whole simulation for every candidate."""
    chosen = [0] * len(numel)
    dropped = set(range(simulated(gap_s, options, chosen)[1]))
    for i in sorted(range(len(numel)), key=lambda i: (-numel[i], -i)):
        if i in dropped:
            continue
        best_s = simulated(gap_s, options, chosen)[0]
        for option in range(1, len(options)):
            tried = [*chosen[:i], option, *chosen[i + 1 :]]
            end_s = simulated(gap_s, options, tried)[0]
            if end_s < best_s - TICK_S:
                best_s, chosen = end_s, tried
        dropped |= set(range(simulated(gap_s, options, chosen)[1]))
    return chosen


def placements(groups: Sequence[np.ndarray]) -> Iterator[tuple[int, ...]]:
    for counts in itertools.product(*(range(len(group) + 1) for group in groups)):
        yield tuple(sorted(int(t) for group, count in zip(groups, counts, strict=True) for t in group[:count]))


def one_after_another(timeline: EspressoTimeline, groups: Sequence[np.ndarray]) -> tuple[int, ...]:
    """The worked replacement of Algorithm 2 for many groups: every count of every group, two passes."""
    placed: set[int] = set()
    for _ in range(2):
        for group in groups:
            best_s, best = timeline.run(mask(placed, len(timeline.gap_s))).end_s, placed
            for count in range(len(group) + 1):
                tried = (placed - set(group.tolist())) | set(group[:count].tolist())
                end_s = timeline.run(mask(tried, len(timeline.gap_s))).end_s
                if end_s < best_s - TICK_S:
                    best_s, best = end_s, tried
            placed = best
    return tuple(sorted(placed))


def mask(host: Any, size: int) -> np.ndarray:
    made = np.zeros(size, dtype=bool)
    made[list(host)] = True
    return made


def combined(options: list[EspressoWork], chosen: Sequence[int]) -> EspressoWork:
    at = np.arange(len(chosen))
    parts = ("encode", "network", "host", "host_network")
    return EspressoWork(*(np.stack([getattr(work, part) for work in options])[list(chosen), at] for part in parts))


def random_case(rng: random.Random, most: int) -> tuple[Profile, Costs]:
    numel, gaps = random_instance(rng, rng.randint(1, most))
    if rng.random() < 0.5:
        numel = [rng.choice((10_000, 300_000, 2_000_000)) for _ in numel]
    costs = random_costs(rng, rng.choice([2, 4, 8, 32]))
    if rng.random() < 0.3:
        tables = [random_table(rng) for _ in range(3)]
        costs = Costs(costs.world_size, *tables, costs.exchange, costs.origin)
    return make_profile(numel, gaps), costs


def best_of_all(profile: Profile, costs: Costs) -> float:
    """All strategies of none, gpu_ag, gpu_div and cpu_ag at once, one row each, simulated tensor by tensor."""
    size = len(profile.tensors)
    codes = np.array(list(itertools.product(range(4), repeat=size)))
    options = works(profile, costs)
    options.append(options[1])
    device, host = np.zeros(len(codes)), np.zeros(len(codes))
    ready, network = np.zeros(codes.shape), np.zeros(codes.shape)
    for i in range(size):
        encode, send = (np.array([getattr(work, part)[i] for work in options]) for part in ("encode", "network"))
        encode[3] = 0.0
        device += profile.ready_gap_s[i] + encode[codes[:, i]]
        host = np.where(codes[:, i] == 3, np.maximum(host, device) + options[3].host[i], host)
        ready[:, i] = np.where(codes[:, i] == 3, host, device)
        network[:, i] = send[codes[:, i]]
    order = np.argsort(ready, axis=1, kind="stable")
    end = np.zeros(len(codes))
    for at, work in zip(np.take_along_axis(ready, order, 1).T, np.take_along_axis(network, order, 1).T, strict=True):
        end = np.maximum(end, at) + work
    return float(np.maximum(end, device).min())
