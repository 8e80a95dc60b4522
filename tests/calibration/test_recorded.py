"""From points to a TimingModel, to files and back."""

from dataclasses import replace

import pytest

from ssfx.core.errors import ConfigError, RunError
from ssfx.core.origin import Origin
from ssfx.lab.calibration import calibrate_cluster as calibration
from ssfx.lab.calibration.calibrate_cluster import Calibrated, codec, network_curves, rising
from ssfx.perf_model.recorded_times import (
    file_name,
    measured_on,
    profile_name,
    recorded_profile,
    recorded_system,
    shipped_dir,
    written_dir,
)
from ssfx.perf_model.timing_model import Contention, TimingModel
from ssfx.planning.costs import Curve, Overheads
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile

ORIGIN = Origin("measured", "two cores", "2026-01-01", "a test", {"torch": "2"})
CODEC = {
    "encode": [(256, 2e-5), (1024, 1e-5), (4096, 4e-5)],
    "decode": [(8, 1e-6), (80, 2e-6)],
    "segment_s": 1e-6,
    "piece_s": 5e-7,
    "tensor_s": 2e-7,
}


def point(primitive, nbytes, alone_s, cpu_s, under_compute_s=None, lost_s=None):
    times = {"alone_s": alone_s, "cpu_s": cpu_s}
    under_compute = {"under_compute_s": under_compute_s, "under_compute_cpu_s": 2 * cpu_s}
    return {"primitive": primitive, "nbytes": nbytes, **times, **under_compute, "under_compute_lost_s": lost_s}


def parts(world_size=2):
    points = [point("send", 4, 1e-4, 5e-5, 3e-3), point("send", 2**16, 2e-4, 5e-5, 4e-3)]
    exchange, contention = network_curves(points, world_size)
    network = TimingModel("local", world_size, {}, exchange, ORIGIN, contention, host_shares=True)
    overheads = Overheads(1e-5, 2e-5, 1e-10, 9e-5, 3e-6, 2e-10, 6e-5, 8e-5, 1e-6, 3e-5)
    rank = TimingModel("compressors", world_size, {"dgc": codec(CODEC, ORIGIN)}, {}, ORIGIN, overheads=overheads)
    return network, rank


def write(folder, *systems):
    folder.mkdir(parents=True, exist_ok=True)
    for system in systems:
        (folder / file_name(system.name, system.world_size)).write_text(system.to_json())


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path))
    monkeypatch.setattr("ssfx.perf_model.recorded_times.shipped_dir", lambda: tmp_path / "shipped")
    return tmp_path


def test_more_never_takes_less():
    curve = rising([(4, 3e-4), (16, 1e-4), (64, 5e-4)])
    between = (3e-4 * 1e-4) ** 0.5  # neighbours in the wrong order share the mean of their logarithms
    assert curve.seconds == (pytest.approx(between, rel=1e-3), pytest.approx(between, rel=1e-3), 5e-4)
    assert curve.covers(64)
    assert not curve.covers(65)


def test_occupancy_is_of_large_exchanges_and_of_the_cores_a_rank_has(monkeypatch):
    points = [point("send", 4, 1e-4, 1e-4), *(point("send", 2**16 * i, 1e-3 * i, 2e-4 * i) for i in (1, 2, 3))]
    monkeypatch.setattr("ssfx.core.machine.cores", lambda: 2)
    assert [network_curves(points, ranks)[1].occupancy["send"] for ranks in (2, 4, 64)] == [0.2, 0.4, 1.0]
    assert "send" not in network_curves(points, 2)[1].under_compute_s


def test_occupancy_of_a_link_too_slow_for_large_messages_is_that_of_its_largest():
    points = [point("send", 4, 1e-2, 1e-2), point("send", 16, 1e-1, 1e-2)]
    assert network_curves(points, 2)[1].occupancy == {"send": 0.1}


def test_computing_power_under_an_exchange_is_counted_in_what_a_rank_has(monkeypatch):
    monkeypatch.setattr("ssfx.core.machine.cores", lambda: 2)
    points = [point("all_reduce", 4, 1e-4, 5e-5, 3e-3), point("all_reduce", 16, 1e-4, 6e-5, 4e-3)]
    _, found = network_curves(points, 4)
    assert found.under_compute_s["all_reduce"].seconds == (3e-3, 4e-3)
    assert found.under_compute_cpu_s["all_reduce"].seconds == (2e-4, 2.4e-4)


def test_computing_power_counts_what_interrupted_passes_lose_by_the_median_of_all_points(monkeypatch):
    monkeypatch.setattr("ssfx.core.machine.cores", lambda: 2)
    lost = [2e-5, -5e-5, 9e-4]  # differences of passes: their median is 0.2 times what threads use
    points = [point("all_reduce", 4**i, 1e-4, 5e-5, 3e-3, one) for i, one in enumerate(lost, 1)]
    points.append(point("send", 4, 1e-4, 5e-5, 3e-3))
    found = network_curves(points, 2)[1].under_compute_cpu_s
    assert found["all_reduce"].seconds == pytest.approx([1.2e-4] * 3)
    assert found["send"].seconds == pytest.approx([1.2e-4])
    gained = [point("all_reduce", 4**i, 1e-4, 5e-5, 3e-3, -one) for i, one in enumerate(lost, 1)]
    # It never costs less than it uses.
    assert network_curves(gained, 2)[1].under_compute_cpu_s["all_reduce"].seconds == pytest.approx([1e-4] * 3)


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-9], lambda text: text.replace('"codecs"', '"codes"'), lambda _: "{}"]
)
def test_a_damaged_file_is_named_with_what_to_do(results, damage):
    write(written_dir(), *parts())
    for name in ("local", "compressors"):
        path = written_dir() / file_name(name, 2)
        whole = path.read_text()
        path.write_text(damage(whole))
        with pytest.raises(RunError, match=f"{path.name} is no measurement that can be read .*; measure again, or del"):
            recorded_system("local", 2)
        path.write_text(whole)
    assert recorded_system("local", 2) is not None


def test_two_files_make_one_system(results):
    network, rank = parts()
    write(written_dir(), network, rank)
    system = recorded_system("local", 2)
    assert system.exchange == network.exchange
    assert system.contention == network.contention
    assert system.origin == network.origin
    assert system.codecs == rank.codecs
    assert system.overheads == rank.overheads
    assert system.host_shares
    assert TimingModel.from_json(system.to_json()) == system


def test_an_exchange_under_compute_needs_its_time_and_its_computing_power():
    curve = Curve((4.0,), (1e-4,))
    with pytest.raises(ValueError, match="both its time and the computing power"):
        Contention(under_compute_s={"send": curve})
    with pytest.raises(ValueError, match="occupancy of send must be in"):
        Contention({"send": 1.5})


def test_without_compressors_the_error_names_the_command(results):
    write(written_dir(), parts()[0])
    with pytest.raises(ConfigError, match="ssfx profile compressors"):
        recorded_system("local", 2).codec("dgc")


def test_here_comes_before_shipped_and_parts_of_two_machines_are_never_mixed(results):
    network, rank = parts()
    write(results / "shipped", network, rank)
    assert recorded_system("local", 2).codecs
    write(written_dir(), network)
    assert not recorded_system("local", 2).codecs


def test_what_was_never_measured_is_none(results):
    write(written_dir(), *parts())
    assert recorded_system("local", 4) is None
    assert recorded_system("emulated_2x1gbit", 2) is None


def test_what_comes_with_the_package_says_so_and_all_say_of_which_machine(results):
    network, rank = parts()
    write(results / "shipped", network, rank)
    shipped = recorded_system("local", 2)
    assert shipped.origin == replace(ORIGIN, note="a test; shipped with ssfx")
    write(written_dir(), network, rank)
    assert recorded_system("local", 2).origin == ORIGIN
    assert recorded_system("local", 2, shipped=True) == shipped
    assert measured_on(ORIGIN) == " on two cores, 2026-01-01"
    assert measured_on(Origin("nominal", hardware="64 x A100")) == ""


def profile(batch_size, optimizer="", seconds=1.0, model="gpt2_tiny"):
    return Profile(model, (TensorSpec("t", (4,)),), (0.5,), seconds, ORIGIN, batch_size, "cpu", 2, optimizer=optimizer)


def keep(folder, found, name=""):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / (name or profile_name(found))).write_text(found.to_json())


def test_the_name_of_a_profile_tells_what_is_not_customary():
    assert profile_name(profile(8, "adamw")) == profile_name(profile(8)) == "gpt2_tiny-cpu-x2.json"
    assert profile_name(profile(4, "adamw")) == "gpt2_tiny-cpu-x2-b4.json"
    assert profile_name(profile(4, "sgd")) == "gpt2_tiny-cpu-x2-b4-sgd.json"
    assert profile_name(profile(8, "sgd", model="mine")) == "mine-cpu-x2-b8-sgd.json"


def test_a_profile_of_another_batch_or_optimizer_hides_none_that_fits(results):
    keep(results / "shipped", profile(8, seconds=8.0))
    keep(written_dir(), profile(4, "adamw", 4.0))
    keep(written_dir(), profile(4, "sgd", 5.0))

    def forward_s(batch_size, optimizer):
        found = recorded_profile("gpt2_tiny", "cpu", 2, batch_size=batch_size, optimizer=optimizer)
        return found and found.forward_s

    assert forward_s(8, "adamw") == 8.0  # written without an optimizer, which was the customary one
    assert (forward_s(4, "adamw"), forward_s(4, "sgd")) == (4.0, 5.0)
    assert forward_s(8, "sgd") is forward_s(16, "adamw") is None
    assert recorded_profile("gpt2_tiny", "cpu", 2, shipped=True).forward_s == 8.0
    assert recorded_profile("gpt2_tiny", "cpu", 2).batch_size == 4
    assert recorded_profile("gpt2_tiny", "cpu", 20) is None
    keep(written_dir(), profile(8, "adamw", 1.0))
    assert forward_s(8, "adamw") == 1.0


def test_what_a_file_holds_counts_and_not_its_name(results):
    keep(written_dir(), profile(4, seconds=4.0), "gpt2_tiny-cpu-x2.json")  # as it was named once
    found = recorded_profile("gpt2_tiny", "cpu", 2, batch_size=4, optimizer="adamw")
    assert (found.forward_s, found.origin.note) == (4.0, "a test")
    assert recorded_profile("gpt2_tiny", "cpu", 2, batch_size=8) is None


def test_shipped_systems_can_be_read_and_say_where_they_come_from():
    profiles = "*-cpu-x*.json"
    assert len(list(shipped_dir().glob(profiles))) >= 8
    for path in set(shipped_dir().glob("*.json")) - set(shipped_dir().glob(profiles)):
        system = TimingModel.from_json(path.read_text())
        assert path.name == file_name(system.name, system.world_size)
        assert system.origin.kind == ("emulated" if system.name.startswith("emulated") else "measured")
        assert system.origin.hardware
        assert system.origin.date


@pytest.mark.nightly
def test_ranks_measure_and_what_they_leave_is_a_system(results):
    found = calibration.calibrate_compressors(2, ["signsgd"], max_numel=2**10)
    assert isinstance(found, Calibrated)
    assert set(found.system.codecs) == {"signsgd"}
    assert found.system.codecs["signsgd"].encode.sizes == (256.0, 1024.0)
    assert found.system.overheads.finish_s > 0
    assert "2 processes" in found.system.origin.note


@pytest.mark.nightly
def test_a_rank_that_fails_is_reported_in_one_line():
    with pytest.raises(RunError, match=r"rank \d failed: .*nosuch"):
        calibration.calibrate_compressors(2, ["nosuch"], max_numel=2**10)


class Rank:
    """A process of which each look finds the next of these exit codes; None: it runs."""

    def __init__(self, *codes):
        self._codes = list(codes)

    def poll(self):
        return self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]


PEER = "RuntimeError: [pair.cc:547] Connection closed by peer [127.0.0.1]:24180"


def waited(tmp_path, monkeypatch, *ranks, limit_s=60.0, grace_s=60.0):
    """Wait for ranks, given with their last words; return what is told."""
    monkeypatch.setattr(calibration, "_POLL_S", 0.001)
    monkeypatch.setattr(calibration, "GRACE_S", grace_s)
    logs = [tmp_path / f"{rank}.log" for rank in range(len(ranks))]
    for log, (_, said) in zip(logs, ranks, strict=True):
        log.write_text(said)
    try:
        calibration._wait([rank for rank, _ in ranks], logs, limit_s)
    except RunError as error:
        return str(error)
    return "all ended well"


def test_the_rank_that_is_to_blame_is_told_with_its_own_words(tmp_path, monkeypatch):
    lost, slower = (Rank(1), f"Traceback\n{PEER}\n"), Rank(None, None, 1)
    told = waited(tmp_path, monkeypatch, lost, (slower, "Traceback\nValueError: mine\n"))
    assert told == "measuring rank 1 failed: ValueError: mine"
    assert waited(tmp_path, monkeypatch, lost, (Rank(-9), "")) == "measuring rank 1 failed: it was killed by signal 9"
    silent = "measuring rank 1 failed: it ended with code 3 and printed nothing"
    assert waited(tmp_path, monkeypatch, lost, (Rank(3), "")) == silent


def test_peers_that_blame_one_another_or_a_silent_one_are_believed_in_the_end(tmp_path, monkeypatch):
    lost, silent = (Rank(1), PEER), (Rank(None), "")
    told = f"measuring rank 0 failed: {PEER}"
    assert waited(tmp_path, monkeypatch, lost, lost) == told
    assert waited(tmp_path, monkeypatch, lost, silent, grace_s=0.01) == told


def test_ranks_have_so_long_to_measure_and_no_longer(tmp_path, monkeypatch):
    assert waited(tmp_path, monkeypatch, (Rank(None, 0), ""), (Rank(0), "")) == "all ended well"
    told = waited(tmp_path, monkeypatch, (Rank(None), ""), (Rank(0), ""), limit_s=0.01)
    assert told.startswith("measuring took more than 0 s; repeat it when nothing else runs here, or with fewer ranks")
