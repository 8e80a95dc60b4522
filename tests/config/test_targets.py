"""What a case is simulated with: a measured profile counts for the batch size and optimizer it was measured with."""

from dataclasses import replace

import pytest

from ssfx.core.case import ClusterChoice
from ssfx.core.files import write_atomic
from ssfx.perf_model import target as targets
from ssfx.perf_model.recorded_times import profile_name, recorded_profile, written_dir
from ssfx.perf_model.roofline import analytic_profile
from ssfx.perf_model.target import target_at

LOCAL = ClusterChoice("local")


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path, two_cores):
    """A machine of two cores, on which nothing was measured."""
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path))
    forget()
    yield
    forget()


def forget():
    targets._target_at.cache_clear()
    targets._on.cache_clear()


def profile(optimizer, ranks=2, batch_size=32):
    forget()
    return target_at(LOCAL, ranks, "cpu", "resnet_tiny", batch_size, optimizer).profile


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_of_another_optimizer_is_not_taken_for_the_one_that_was_measured(ranks):
    measured, other = profile("sgd", ranks), profile("adam", ranks)
    assert (measured.origin.kind, other.origin.kind) == ("measured", "nominal")
    assert measured.origin.note.endswith("; shipped with ssfx")
    assert measured.ranks == ranks
    assert other.step_s > analytic_profile("resnet_tiny", "cpu", 32).step_s
    assert (other.optimizer, "step: adam;" in other.origin.note) == ("adam", True)


def test_another_optimizer_is_another_calibration():
    found = {optimizer: target_at(LOCAL, 2, "cpu", "resnet_tiny", 32, optimizer) for optimizer in ("sgd", "adam")}
    assert found["sgd"].calibration != found["adam"].calibration
    cloud = ClusterChoice("16gpu")
    nominal = {target_at(cloud, 16, "auto", "resnet50", 32, one).profile.step_s for one in ("sgd", "adam")}
    assert len(nominal) == 2


def test_what_is_measured_later_is_seen_by_the_same_process():
    def step_s():
        return target_at(LOCAL, 2, "cpu", "resnet_tiny", 32, "adam").profile.step_s

    assert step_s() != 0.25
    mine = replace(recorded_profile("resnet_tiny", "cpu", 2), optimizer="adam", step_s=0.25)
    written_dir().mkdir(parents=True)
    write_atomic(written_dir() / profile_name(mine), mine.to_json())
    assert step_s() == 0.25
    write_atomic(written_dir() / profile_name(mine), replace(mine, step_s=0.5).to_json())
    assert step_s() == 0.5


def test_what_was_measured_here_with_it_is_taken():
    shipped = recorded_profile("resnet_tiny", "cpu", 2)
    mine = replace(shipped, optimizer="adam", step_s=0.25)
    written_dir().mkdir(parents=True)
    (written_dir() / profile_name(mine)).write_text(mine.to_json())
    assert profile("adam").step_s == 0.25
    assert profile("sgd") == shipped
    assert profile("sgd", batch_size=8).origin.kind == "nominal"
