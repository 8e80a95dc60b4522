"""Simulated runs: rows say what they are, an equal run is never repeated, what it rests on is its identity."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
from processes import HANG_S, runs, wait_until

from ssfx.advice.cases import simulate_case
from ssfx.config.groups import choices
from ssfx.core.case import Case, ClusterChoice
from ssfx.core.errors import ConfigError
from ssfx.core.rows import Row
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.engines import engines, simulate
from ssfx.lab.results.store import Store
from ssfx.perf_model import target as targets
from ssfx.perf_model.cluster_file import cluster_on
from ssfx.perf_model.target import target_of

WORDS = ["cluster=16gpu", "workload=text_lstm", "scheme=ddp,per_tensor", "density=0.01"]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def cases(*words):
    return resolve_job([*WORDS, *words]).cases


def run(found, store):
    return engines["simulate"].run(found, store, progress=False)


@pytest.fixture
def recalibrated(monkeypatch):
    """From now on, every system has slower copies to the host than the one before."""

    def forget():
        targets._target_at.cache_clear()
        targets._on.cache_clear()

    system_on = targets.system_on
    yield lambda: (
        forget(),
        monkeypatch.setattr(
            targets, "system_on", lambda *args, **kwargs: replace(system_on(*args, **kwargs), pcie_s_per_byte=1.0)
        ),
    )
    forget()


on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere one process computes all cases")


@on_linux
def test_several_processes_compute_what_one_does(tmp_path, monkeypatch):
    found = cases("batch_size=8,16", "trace=true")
    alone = run(found, Store(tmp_path / "one"))
    monkeypatch.setattr(simulate, "threading", SimpleNamespace(active_count=lambda: 1))  # whatever other tests left
    monkeypatch.setattr("ssfx.core.machine.cores", lambda: 2)
    monkeypatch.setattr(simulate, "ENOUGH", 1)
    monkeypatch.setattr(simulate, "row_of", with_process(simulate.row_of))
    together = run(found, Store(tmp_path / "two"))
    assert os.getpid() not in {row.manifest.pop("pid") for row in together}
    assert [row.case for row in together] == list(found)
    assert [(row.case, row.metrics, row.manifest) for row in together] == [
        (row.case, row.metrics, row.manifest) for row in alone
    ]
    traces = [sorted(folder.glob("runs/*/attempt-1/trace-rank0.json")) for folder in tmp_path.iterdir()]
    assert [path.read_bytes() for path in traces[0]] == [path.read_bytes() for path in traces[1]]
    assert len(traces[0]) == 4


def with_process(row_of):
    def made(*about):
        row = row_of(*about)
        row.manifest["pid"] = os.getpid()
        return row

    return made


def test_a_wrong_case_is_told_by_whichever_process_met_it(store, monkeypatch):
    monkeypatch.setattr("ssfx.core.machine.cores", lambda: 2)
    monkeypatch.setattr(simulate, "ENOUGH", 1)
    right, wrong = cases()
    with pytest.raises(ConfigError, match="is a case of calibration other, here is nominal"):
        run([right, replace(wrong, calibration="other")], store)
    assert not list(store.runs.glob("*/row.json"))


@on_linux
def test_no_process_outlives_a_killed_command(started):
    script = (
        "import os, sys, time\n"
        "from ssfx.core import machine\n"
        "from ssfx.lab.config.cases import resolve_job\n"
        "from ssfx.lab.engines import simulate\n"
        "machine.cores, simulate.ENOUGH = (lambda: 2), 1\n"
        "def hang(*_): os.write(1, b'%d\\n' % os.getpid()); time.sleep(600)\n"
        "simulate._compute = hang\n"
        f"simulate._computed(resolve_job({WORDS!r}).cases, {{}})\n"
    )
    command = started.start([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    computing = [psutil.Process(int(command.stdout.readline())) for _ in range(2)]
    assert all(runs(one) for one in computing)
    command.kill()
    command.wait(HANG_S)
    wait_until(lambda: not any(runs(one) for one in computing))


def test_rows_say_that_and_from_what_they_were_simulated(store):
    rows = run(cases(), store)
    assert [row.case.scheme for row in rows] == ["ddp", "per_tensor"]
    for row in rows:
        assert row.origin.kind == "simulated"
        assert "a100 devices (nominal costs, nominal profile)" in row.origin.hardware
        manifest, target = row.manifest, target_of(row.case)
        assert row.case.calibration == target.calibration == f"nominal:{target.calibration[-8:]}"
        assert manifest["calibration"] == "nominal"
        assert manifest["system"]["digest"] == target.system.digest
        assert manifest["profile"]["origin"]["note"] == target.profile.origin.note
        assert manifest["plan_digest"] == simulate_case(row.case)[1].plan.digest
        assert manifest["extrapolated"] == []
        assert set(manifest["code"]) == {"version", "commit", "dirty"}
        metrics = row.metrics
        assert sum(manifest["critical_s"].values()) == pytest.approx(metrics["iteration_s"])
        parts = ("forward_s", "backward_s", "sparsify_s", "exposed_comm_s", "step_s", "other_s")
        assert sum(metrics[part] for part in parts) == pytest.approx(metrics["iteration_s"])
        samples = 16 * row.case.batch_size
        assert metrics["throughput_samples_per_s"] == pytest.approx(samples / metrics["iteration_s"])
        assert Row.from_json(row.to_json()) == row
    assert Store(store.runs.parent).rows() == sorted(rows, key=lambda row: row.run_id)


def test_costs_outside_their_range_are_listed(store):
    words = ["cluster=64gpu", "cluster.calibration=published", "scheme=fused_all", "workload=resnet152_imagenet"]
    (row,) = run(resolve_job(words).cases, store)
    assert row.case.calibration.startswith("published:")
    assert row.manifest["extrapolated"][0].startswith("dgc")


def test_a_finished_run_is_not_repeated(store):
    first = run(cases(), store)
    (store.run_dir(first[0].case) / "row.json").unlink()
    second = run(cases(), store)
    assert second[1] == first[1]
    assert {**second[0].metrics} == {**first[0].metrics}
    assert store.status(first[0].case) == "finished"


def test_another_system_is_another_run(store, recalibrated):
    before = cases()
    recalibrated()
    after = cases()
    assert {case.run_id for case in before}.isdisjoint(case.run_id for case in after)
    assert [replace(case, calibration="") for case in before] == [replace(case, calibration="") for case in after]
    with pytest.raises(ConfigError, match=r"is a case of calibration nominal:\w{8}, here is nominal:\w{8}; resolve"):
        run(before, store)
    assert store.rows() == []


def test_a_real_run_keeps_the_id_it_always_had():
    case = Case("quickstart", "resnet_tiny", "digits", "ddp", "local", 2, 32)
    assert case.run_id == "b231bd409599"
    assert replace(case, calibration="nominal:00000000").run_id != case.run_id


def test_seeds_repeats_and_steps_are_no_part_of_a_simulated_run():
    for case in cases():
        assert (case.steps, case.warmup_steps, case.seed, case.repeat, case.evaluate) == (1, 0, 0, 0, False)


def test_what_differs_from_a_clusters_file_is_in_its_name():
    plain, slow = cases()[0], cases("cluster.nodes=4", "cluster.inter.gbps=10")[0]
    assert cases("cluster.inter.gbps=200.0") == cases()
    assert [str(case.cluster) for case in cases("cluster.inter.gbps=10,200")] == ["16gpu(inter.gbps=10)", "16gpu"] * 2
    assert (str(plain.cluster), str(slow.cluster)) == ("16gpu", "16gpu(inter.gbps=10)")
    here = cluster_on(slow.cluster, slow.world_size, slow.device)
    assert (here.name, here.inter.gbps, here.nodes) == (str(slow.cluster), 10, 4)
    assert here.inter.latency_s == cluster_on(ClusterChoice("16gpu"), 16, "cuda").inter.latency_s


def test_several_clusters_in_one_command(store):
    rows = run(resolve_job(["cluster=16gpu,32gpu,64gpu", "scheme=ddp", "workload=text_lstm"]).cases, store)
    assert [row.case.world_size for row in rows] == [16, 32, 64]
    assert rows[0].metrics["iteration_s"] < rows[2].metrics["iteration_s"]


def test_one_device_alone_is_the_ideal_and_exchanges_nothing(store):
    (row,) = run(resolve_job(["cluster=16gpu", "scheme=ssgd", "workload=text_lstm", "world_size=1"]).cases, store)
    assert (row.case.cluster.name, row.case.world_size, row.metrics["sent_bytes"]) == ("16gpu", 1, 0)
    assert row.metrics["iteration_s"] == pytest.approx(target_of(row.case).profile.alone_s())


def test_the_papers_workloads_replace_what_can_be_trained_here():
    models = {"resnet152", "vit_large", "bert_large", "gpt2_large"}
    found = resolve_job(["experiment=throughput", "cluster=64gpu"]).cases
    assert {case.model for case in found} == models
    assert {case.model for case in found if case.world_size == 1} == models
    assert {case.density for case in found} == {None, 0.01}
    assert {case.batch_size for case in found if case.model == "bert_large"} == {4}


def test_a_trace_is_left_beside_the_row(store):
    row, _ = run(cases("trace=true"), store)
    attempt = store.run_dir(row.case) / "attempt-1"
    events = json.loads((attempt / "trace-rank0.json").read_text())["traceEvents"]
    assert any(event["name"].startswith("exchange ") for event in events)
    assert json.loads((attempt / "plan.json").read_text())["scheme"] == row.case.scheme


def test_nothing_of_torch_is_imported(tmp_path):
    code = (
        "import sys; from ssfx.cli import main\n"
        f"assert main(['run', *{WORDS!r}]) == 0\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        env={"PATH": "", "SSFX_RESULTS": str(tmp_path)},
    )
    assert len(Store(tmp_path).rows("quickstart")) == 2


# Operators of Mask R-CNN cannot be counted without values, so it is trained only.
@pytest.mark.parametrize("workload", sorted({*choices("workload")} - {"mask_rcnn_synthetic"}))
def test_every_workload_can_be_simulated(workload):
    (case,) = resolve_job(["cluster=16gpu", "scheme=ddp", f"workload={workload}"]).cases
    assert simulate_case(case)[1].iteration_s > target_of(case).profile.alone_s()
