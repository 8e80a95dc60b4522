"""Files for launchers other than Slurm: a SkyPilot task or a Kubeflow TrainJob for each shape of nodes of a sweep.

Their fields were read on 2026-11-25. SkyPilot's: sky/utils/schemas.py of github.com/skypilot-org/skypilot at commit
00052dfe0d13 (get_task_schema, get_resources_schema); its variables: docs/source/reference/yaml-spec.rst. Kubeflow's:
manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml of github.com/kubeflow/trainer at commit 8c0f5059bd51; what its
torch plugin sets (PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT): pkg/runtime/framework/plugins/torch/torch.go.
Nothing of either is imported.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ssfx.core.case import Case
from ssfx.core.errors import ConfigError
from ssfx.core.files import write_atomic
from ssfx.lab.engines.sbatch import Shape
from ssfx.lab.engines.torchrun import TRAIN, check_measured
from ssfx.perf_model.cluster_file import cluster_on

RESULTS = "/ssfx-results"
"""Where the volume of that name is on every node."""
VOLUME = "ssfx-results"
PORT = 29500
MOST_CASES = 64
"""Cases of one file: a container is given its script as one argument, of at most 128 KiB."""
ACCELERATORS = {
    "a100": "A100-80GB", "a100_40gb": "A100", "h100": "H100", "h200": "H200", "b200": "B200", "l40s": "L40S",
    "v100": "V100-32GB", "p100": "P100", "rtx3090": "RTX3090",
}  # fmt: skip
"""Names of devices in SkyPilot's catalogue; others are asked for by their name here in capitals."""


def emit(launcher: str, cases: Sequence[Case], folder: Path, stall_timeout_s: float | None) -> list[Path]:
    """Write the files that run `cases` by `launcher`, "sky" or "kubeflow", into `folder`; return their paths.

    ConfigError for a case that leaves nothing to measure, or without a file to write.
    """
    import yaml

    check_measured(cases)
    if not cases:
        raise ConfigError("all runs are finished, so there is nothing to emit; change a key, for example seed=1")
    groups: dict[tuple[Shape, str], list[Case]] = {}
    for case in cases:
        cluster = cluster_on(case.cluster, case.world_size, case.device)
        shape = Shape(cluster.nodes, cluster.devices_per_node, case.device == "cuda")
        groups.setdefault((shape, cluster.device), []).append(case)
    paths = []
    for (shape, device), group in groups.items():
        for start in range(0, len(group), MOST_CASES):
            part = group[start : start + MOST_CASES]
            name = f"ssfx-{part[0].run_id}"
            body = WRITERS[launcher](name, shape, device, sweep_text(part, stall_timeout_s))
            path = folder / f"{name}.{launcher}.yaml"
            head = f"# {len(part)} run(s) of experiment={part[0].experiment}, written by ssfx run --emit {launcher}\n"
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(path, head + yaml.dump(body, Dumper=_dumper(), sort_keys=False, width=100))
            paths.append(path)
    return paths


def sweep_text(cases: Sequence[Case], stall_timeout_s: float | None) -> str:
    """Return what `ssfx.lab.engines.every_node` reads: one line of JSON."""
    said = {
        "root": RESULTS, "train": TRAIN, "stall_timeout_s": stall_timeout_s, "key": secrets.token_hex(16),
        "cases": [asdict(case) for case in cases],
    }  # fmt: skip
    return json.dumps(said)


def sky_task(name: str, shape: Shape, device: str, sweep: str) -> dict[str, Any]:
    """Return a SkyPilot task, which needs a volume of the name ssfx-results that all its nodes can write to."""
    accelerator = ACCELERATORS.get(device, device.upper())
    resources = {"accelerators": f"{accelerator}:{shape.ranks_per_node}", "network_tier": "best"}
    first = '"$(echo "$SKYPILOT_NODE_IPS" | head -n 1)"'
    return {
        "name": name,
        "num_nodes": shape.nodes,
        "resources": resources if shape.gpus else {"cpus": f"{shape.ranks_per_node}+"},
        "volumes": {RESULTS: VOLUME},
        "setup": _install(),
        "run": _script(shape, sweep, '"$SKYPILOT_NODE_RANK"', first, str(PORT)),
    }


def kubeflow_job(name: str, shape: Shape, device: str, sweep: str) -> dict[str, Any]:  # noqa: ARG001
    """Return a TrainJob of the runtime torch-distributed, which needs a claim ssfx-results that all nodes can write to.

    Which GPUs a node has is the cluster's; a nodeSelector of the runtime chooses among several kinds.
    """
    script = _install() + _script(shape, sweep, '"$PET_NODE_RANK"', '"$PET_MASTER_ADDR"', '"$PET_MASTER_PORT"')
    amount = {"nvidia.com/gpu" if shape.gpus else "cpu": shape.ranks_per_node}
    pod = {
        "volumes": [{"name": VOLUME, "persistentVolumeClaim": {"claimName": VOLUME}}],
        "containers": [{"name": "node", "volumeMounts": [{"name": VOLUME, "mountPath": RESULTS}]}],
    }
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {
                "numNodes": shape.nodes,
                "numProcPerNode": shape.ranks_per_node,
                "resourcesPerNode": {"requests": amount, "limits": amount},
                "command": ["bash", "-c", script],
            },
            "runtimePatches": [
                {"manager": "ssfx.io/emit", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
            ],
        },
    }


WRITERS: dict[str, Callable[[str, Shape, str, str], dict[str, Any]]] = {"sky": sky_task, "kubeflow": kubeflow_job}


def _install() -> str:
    return f"python -m pip install ssfx=={version('ssfx')}  # or your image, or a path that all nodes see\n"


def _script(shape: Shape, sweep: str, rank: str, address: str, port: str) -> str:
    """Return the lines that every node runs; between quoted words of a here-document a shell changes nothing."""
    return (
        f"set -e\ncat > /tmp/ssfx-sweep.json <<'SSFX_SWEEP'\n{sweep}\nSSFX_SWEEP\n"
        f"exec python -m ssfx.lab.engines.every_node /tmp/ssfx-sweep.json --nodes {shape.nodes} --rank {rank} "
        f"--address {address} --port {port}\n"
    )


def _dumper() -> Any:
    """Return a writer of YAML that has scripts as blocks, which people can read, and no anchors."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return Dumper
