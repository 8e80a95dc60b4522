"""What `ssfx run --emit` writes has the fields of SkyPilot and Kubeflow Trainer, and its script runs on two nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

import pytest
import yaml
from engines.helpers import make_case

from ssfx.cli import main
from ssfx.core import machine
from ssfx.core.case import Case
from ssfx.lab.engines.allocation import free_port
from ssfx.lab.engines.emit import MOST_CASES, RESULTS
from ssfx.lab.engines.every_node import Nodes

# Read on 2026-11-25 in sky/utils/schemas.py of github.com/skypilot-org/skypilot, commit 00052dfe0d13: get_task_schema
# and _get_single_resources_schema, which both say additionalProperties: False; those with a leading _ are left out.
SKY_TASK = {
    "name": str, "workdir": (str, dict), "event_callback": str, "num_nodes": int, "resources": dict,
    "file_mounts": dict, "service": dict, "pool": dict, "setup": str, "run": str, "envs": dict, "secrets": (dict, list),
    "managed_secrets": list, "inputs": dict, "outputs": dict, "file_mounts_mapping": dict, "config": dict,
    "volumes": dict, "volume_mounts": list, "api_server_access": bool,
}  # fmt: skip
SKY_RESOURCES = {
    "cloud": str, "region": str, "zone": str, "infra": str, "cpus": (str, int, float), "memory": (str, int, float),
    "accelerators": (str, dict, list), "instance_type": str, "use_spot": bool, "job_recovery": (str, dict),
    "volumes": list, "disk_size": (str, int), "disk_tier": str, "network_tier": str, "local_disk": str,
    "max_hourly_cost": (int, float), "ports": (str, int, list), "labels": dict, "accelerator_args": dict,
    "image_id": (str, dict), "autostop": (bool, int, str, dict), "priority": int, "priority_class": str,
    "any_of": list, "ordered": list,
}  # fmt: skip
# Read on 2026-11-25 in manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml of github.com/kubeflow/trainer, commit
# 8c0f5059bd51, version v1alpha1. A type, or the fields below; a list has one entry, which all its items follow.
POD = {
    "affinity": dict, "imagePullSecrets": list, "initContainers": list, "nodeSelector": dict, "schedulingGates": list,
    "securityContext": dict, "serviceAccountName": str, "terminationGracePeriodSeconds": int, "tolerations": list,
    "volumes": [{"name": str, "persistentVolumeClaim": {"claimName": str, "readOnly": bool}}],
    "containers": [
        {"name": str, "env": list, "securityContext": dict, "volumeMounts": [
            {"name": str, "mountPath": str, "subPath": str, "readOnly": bool, "mountPropagation": str},
        ]},
    ],
}  # fmt: skip
JOBS = [{"name": str, "template": {"metadata": dict, "spec": {"template": {"metadata": dict, "spec": POD}}}}]
TRAIN_JOB = {
    "apiVersion": str, "kind": str, "metadata": {"name": str, "namespace": str, "labels": dict, "annotations": dict},
    "spec": {
        "runtimeRef": {"name": str, "apiGroup": str, "kind": str},
        "initializer": dict, "suspend": bool, "managedBy": str, "activeDeadlineSeconds": int,
        "trainer": {
            "image": str, "command": [str], "args": [str], "env": list, "numNodes": int, "numProcPerNode": int,
            "resourcesPerNode": {"requests": dict, "limits": dict, "claims": list},
        },
        "runtimePatches": [
            {"manager": str, "time": str, "trainingRuntimeSpec": {
                "template": {"metadata": dict, "spec": {"replicatedJobs": JOBS}},
            }},
        ],
    },
}  # fmt: skip
WORDS = ["model=resnet50", "dataset=synthetic", "cluster=64gpu", "cluster.device=h100"]


def misfits(value, schema):
    """Return the paths below `value` that `schema` does not have, or has with another type."""
    return list(_misfits(value, schema, ""))


def _misfits(value, schema, where):
    kinds = dict if isinstance(schema, dict) else list if isinstance(schema, list) else schema
    if not isinstance(value, kinds) or (isinstance(value, bool) and schema is not bool):
        yield where
    elif isinstance(schema, dict):
        yield from (f"{where}.{key}" for key in value if key not in schema)
        for key in value.keys() & schema.keys():
            yield from _misfits(value[key], schema[key], f"{where}.{key}")
    elif isinstance(schema, list):
        for one in value:
            yield from _misfits(one, schema[0], where)


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "gpus", tuple)
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path / "results"))


@pytest.fixture
def emitted(tmp_path):
    def emit(launcher, *words):
        assert main(["run", "--emit", launcher, *WORDS, *words]) == 0
        paths = sorted((tmp_path / "results" / "emit").glob(f"*.{launcher}.yaml"))
        return [yaml.safe_load(path.read_text()) for path in paths]

    return emit


def sweep_of(script: str) -> list[Case]:
    said = json.loads(script.split("SSFX_SWEEP'\n")[1].split("\nSSFX_SWEEP")[0])
    assert said["root"] == RESULTS
    return [Case.of(one) for one in said["cases"]]


def test_a_sky_task_has_the_fields_of_its_schema_and_the_cases_of_the_sweep(emitted):
    (task,) = emitted("sky", "scheme=ddp,wfbp", "cluster.nodes=2")
    assert misfits(task, SKY_TASK) == []
    assert misfits(task["resources"], SKY_RESOURCES) == []
    assert (task["num_nodes"], task["resources"]["accelerators"]) == (2, "H100:4")
    assert task["volumes"] == {RESULTS: "ssfx-results"}
    cases = sweep_of(task["run"])
    assert [(case.scheme, case.world_size, case.device) for case in cases] == [("ddp", 8, "cuda"), ("wfbp", 8, "cuda")]
    assert '--nodes 2 --rank "$SKYPILOT_NODE_RANK"' in task["run"]


def test_a_train_job_has_the_fields_of_its_schema_and_the_cases_of_the_sweep(emitted):
    (job,) = emitted("kubeflow", "scheme=ddp,wfbp", "cluster.nodes=2")
    assert misfits(job, TRAIN_JOB) == []
    assert (job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    trainer = job["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 4)
    assert trainer["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": 4}
    assert [case.scheme for case in sweep_of(trainer["command"][2])] == ["ddp", "wfbp"]


def test_a_field_that_a_schema_lacks_and_a_wrong_type_are_seen():
    assert misfits({"name": "a", "nodes": 2}, SKY_TASK) == [".nodes"]
    job = {"spec": {"trainer": {"numNodes": "2", "command": [3]}, "runtimePatches": [{"manger": "a"}]}}
    wrong = {".spec.trainer.numNodes", ".spec.trainer.command", ".spec.runtimePatches.manger"}
    assert set(misfits(job, TRAIN_JOB)) == wrong


def test_each_shape_has_a_file_and_none_is_too_long_for_an_argument(emitted):
    jobs = emitted("kubeflow", "scheme=ddp", "cluster.nodes=1,2", f"seed=range(0,{MOST_CASES + 1})")
    assert sorted(job["spec"]["trainer"]["numNodes"] for job in jobs) == [1, 1, 2, 2]
    assert all(len(job["spec"]["trainer"]["command"][2]) < 128 * 1024 for job in jobs)


@pytest.mark.parametrize("word", ["engine=simulate", "cluster.slurm.partition=a", "cluster=local"])
def test_what_no_launcher_can_be_told_is_refused(capsys, word):
    assert main(["run", "--emit", "sky", *WORDS[:2], "scheme=ddp", word]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.torchrun
def test_two_nodes_run_two_cases_and_the_first_writes_their_rows(store, started, tmp_path):
    cluster = "16gpu(device=cpu,devices_per_node=1,nodes=2)"
    cases = [make_case(cluster=cluster, seed=seed) for seed in range(2)]
    sweep = tmp_path / "sweep.json"
    said = {"root": str(store.runs.parent), "train": "fake_train:train", "stall_timeout_s": None, "key": "ours"}
    sweep.write_text(json.dumps({**said, "cases": [asdict(case) for case in cases]}))
    command = [sys.executable, "-m", "ssfx.lab.engines.every_node", sweep, "--nodes", "2", "--address", "127.0.0.1"]
    port = str(free_port())
    nodes = [started.start([*command, "--port", port, "--rank", str(rank)]) for rank in (1, 0)]
    assert [node.wait() for node in nodes] == [0, 0]
    for case in cases:
        row = store.row(case)
        assert row.manifest["launched"] == {"nodes": 2}
        assert row.origin.hardware.startswith("2 x (")


def test_a_node_starts_nothing_that_was_not_signed_with_the_key_of_its_sweep(started, tmp_path):
    port, sweep = free_port(), tmp_path / "sweep.json"
    sweep.write_text(json.dumps({"key": "ours"}))
    command = [sys.executable, "-m", "ssfx.lab.engines.every_node", sweep, "--nodes", "2", "--address", "127.0.0.1"]
    node = started.start([*command, "--port", str(port), "--rank", "1"], stderr=subprocess.PIPE, text=True)
    stranger = Nodes(2, 0, "127.0.0.1", port, "theirs")
    touch = ["-c", f"open({str(tmp_path / 'started')!r}, 'w')"]
    stranger.say(json.dumps({"agent": touch, "worker": [], "variables": {}}).encode())
    assert node.wait() != 0
    assert "not signed with the key of this sweep" in node.stderr.read()
    assert not (tmp_path / "started").exists()
