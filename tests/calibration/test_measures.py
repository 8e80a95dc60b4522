"""Two ranks measure at the smallest sizes: everything that a TimingModel needs is there, the same on both."""

from dataclasses import asdict
from types import SimpleNamespace

import pytest
from calibration.work import codecs, exchanges, overheads

from ssfx.collectives.comm import Pending
from ssfx.compressors import build
from ssfx.lab.calibration import measure, measure_exchange
from ssfx.lab.calibration.measure_exchange import PRIMITIVES
from ssfx.perf_model.timing_model import Overheads


def test_every_primitive_is_measured_alone_and_under_compute(pool):
    first, second = pool.run(exchanges, 2)
    assert first == second
    assert list(dict.fromkeys(point["primitive"] for point in first)) == list(PRIMITIVES)
    sizes = {name: [p["nbytes"] for p in first if p["primitive"] == name] for name in PRIMITIVES}
    assert sizes.pop("all_to_all") == sizes.pop("reduce_scatter") == [8, 32]  # a part for every rank
    assert all(found == [4, 16, 64] for found in sizes.values())
    for point in first:
        assert point["alone_s"] > 0
        assert point["under_compute_s"] > 0
        assert point["under_compute_cpu_s"] > 0
        assert point["under_compute_lost_s"] > 0  # all that the passes take without issuing: undisturbed ones take 0 s


def alone():
    """Return the ranks of a world of one."""
    return SimpleNamespace(group=None, world_size=1, all_reduce=lambda value, op="sum": Pending(None, value))


def test_passes_lose_what_they_take_longer_than_before_and_after(monkeypatch):
    series = SimpleNamespace(start=lambda: None, issuing_s=0.25, calls=5, seconds=[1.0, 9.0, 2.0])
    backward = measure_exchange._Backward()
    spans = iter([(4, 4.0), (10, 17.75), (2, 4.0)])  # 1 s each before, 2 s after, 1.75 s in between
    monkeypatch.setattr(backward, "_until", lambda _: next(spans))
    seconds, cpu_s, lost_s = backward.exchanging(alone(), series)
    assert seconds == 2.0
    assert cpu_s >= 0
    assert lost_s == pytest.approx((17.75 - 0.25 - 10 * 1.5) / 5)


def test_passes_go_on_until_the_exchanges_end_and_take_their_own_threads_cpu_time(monkeypatch):
    clock = iter([100.0, 107.0])
    monkeypatch.setattr(measure_exchange, "thread_time", lambda: next(clock))
    backward = measure_exchange._Backward()
    polls = []
    ends = iter([False, False, True])
    passes, own_s = backward._until(SimpleNamespace(poll=lambda: polls.append(1), over=lambda: next(ends)))
    assert (passes, own_s) == (3, 7.0)
    assert len(polls) == 3 * sum(1 for _ in backward._model.parameters())  # once for every gradient
    backward._model(backward._inputs).sum().backward()
    assert len(polls) == 3 * sum(1 for _ in backward._model.parameters())


# One of each kind: selected elements, codes, sums with a first round, sums of factors.
@pytest.mark.parametrize("name", ["dgc", "signsgd", "cltk", "powersgd"])
def test_codecs_are_measured_over_their_own_units(pool, name):
    first, second = pool.run(codecs, 2, [name])
    assert first == second
    found, compressor = first[name], build(name)
    shapes = [(16, 16), (32, 32)]
    assert [units for units, _ in found["encode"]] == [compressor.work([shape]) for shape in shapes]
    if compressor.sparse:
        entries = [2.0 * compressor.layout_of([shape], 0.01).indices for shape in shapes]
    else:
        entries = [(1 if compressor.additive else 2) * compressor.work([shape]) for shape in shapes]
    assert [size for size, _ in found["decode"]] == entries
    assert all(seconds > 0 for _, seconds in [*found["encode"], *found["decode"]])
    assert min(found["segment_s"], found["piece_s"], found["tensor_s"]) >= 0
    assert found["piece_s"] == 0 or name == "powersgd"


def test_overheads_are_those_of_the_runtimes_own_code(pool):
    first, second = pool.run(overheads, 2)
    assert first == second
    assert min(first.values()) >= 0
    assert first["finish_s"] > 0


def test_each_overhead_is_found_in_the_step_that_it_adds_to(monkeypatch):
    true = Overheads(
        hook_s=11e-6,
        add_s=7e-6,
        fill_s_per_byte=3e-10,
        lane_s=40e-6,
        result_s=2e-6,
        result_s_per_byte=5e-10,
        finish_s=90e-6,
        offload_s=60e-6,
        sum_s=4e-6,
        decode_s=80e-6,
    )

    def steps(_comm, sizes, variant):
        sparse, nbytes = variant == "sparse", 4 * sizes[0] if sizes[0] == measure._LARGE else 0
        ended_s = 0.9 * true.finish_s + len(sizes) * nbytes * true.result_s_per_byte + sparse * true.decode_s
        ended_s += (len(sizes) - 1) * (true.sum_s if sparse else 0 if nbytes else true.result_s)
        return measure._Step(0.1 * true.finish_s, 1e-6 + nbytes * true.fill_s_per_byte + sparse * true.add_s, ended_s)

    fused_s = true.hook_s + true.result_s + true.finish_s / measure._HOOKS
    hooks_s = {"fused": fused_s, "per_tensor": fused_s + true.lane_s}
    monkeypatch.setattr(measure, "_Silent", lambda _group: None)
    monkeypatch.setattr(measure, "_steps", steps)
    monkeypatch.setattr(measure, "_hooks_s", lambda _comm, variant: hooks_s[variant])
    monkeypatch.setattr(measure, "_offload_s", lambda _comm: true.offload_s)
    monkeypatch.setattr(measure, "crowding", lambda _world: 1.0)
    found = measure.overhead_times(alone())
    assert asdict(found) == pytest.approx(asdict(true))
