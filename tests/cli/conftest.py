"""A machine without GPUs, an empty results folder, and a small shipped profile."""

import pytest

from ssfx.core import machine
from ssfx.core.origin import Origin
from ssfx.planning.plan import TensorSpec
from ssfx.planning.profile import Profile


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "gpus", tuple)
    monkeypatch.setattr(machine, "cores", lambda: 2)
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path / "results"))


@pytest.fixture
def shipped(monkeypatch, tmp_path):
    """Ship the profile of resnet_tiny only: four tensors, one of them large."""
    tensors = tuple(TensorSpec(f"t{i}", (numel,)) for i, numel in enumerate((10, 300_000, 64, 40_000)))
    profile = Profile("resnet_tiny", tensors, (0.001,) * 4, 0.002, Origin("measured", note="made up"), 32, "cpu")
    profile.save(tmp_path / "resnet_tiny.json")
    monkeypatch.setattr("ssfx.perf_model.shipped_profiles.shipped_dir", lambda: tmp_path)
    monkeypatch.setattr("ssfx.perf_model.operator_counts.work_dir", lambda: tmp_path / "models")
    return profile
