"""SSFusion's set-up: what the paper says about clusters and settings, beside what ssfx takes for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.verdicts import Verdict, compared
from experiments.common.figures.tables import draw_table
from ssfx.core.paths import conf_dir
from ssfx.core.rows import Row
from ssfx.schemes import schemes

NAME = "ssfusion.text.setup"
TITLE = "Section V-A: settings of the paper and of ssfx"
COMMAND = "ssfx figures ssfusion.text.setup"

SETTINGS = {
    "ssfusion.setup.cloud.gpus": ("cluster", "64gpu", "GPUs"),
    "ssfusion.setup.cloud.nodes": ("cluster", "64gpu", "nodes"),
    "ssfusion.setup.cloud.gpus_per_node": ("cluster", "64gpu", "devices_per_node"),
    "ssfusion.setup.cloud.bw": ("cluster", "64gpu", "inter.gbps"),
    "ssfusion.setup.local.nodes": ("cluster", "ssfusion_local", "nodes"),
    "ssfusion.setup.local.bw": ("cluster", "ssfusion_local", "inter.gbps"),
    "ssfusion.setup.density": ("scheme", "ssfusion_oi", "density"),
    "ssfusion.iii.setting.density": ("scheme", "per_tensor", "density"),
    "ssfusion.design.density": ("scheme", "ssfusion_oi", "density"),
    "ssfusion.design.density_floor": ("scheme", "ssfusion_oi", "rho_min"),
    "ssfusion.design.warmup": ("scheme", "ssfusion_oi", "profile_iters"),
    "ssfusion.setup.exp1_gpus16": ("cluster", "16gpu", "GPUs"),
    "ssfusion.setup.exp1_gpus32": ("cluster", "32gpu", "GPUs"),
    "ssfusion.setup.exp1_gpus64": ("cluster", "64gpu", "GPUs"),
    "ssfusion.exp7.gpus": ("cluster", "64gpu_40gb", "GPUs"),
}
"""Claims and where ssfx has the setting: in conf/cluster/, or among the defaults of a scheme."""
NOT_TAKEN = {
    "ssfusion.setup.cloud.cpu_cores": "Costs of the host are those of one compression at a time, whatever its cores.",
    "ssfusion.setup.local.cpu_cores": "Costs of the host are those of one compression at a time, whatever its cores.",
    "ssfusion.design.traces": "ssfx profiles in the first training steps alone, and traces nothing before them.",
}
"""Settings that ssfx does not have, and why."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the table: what is set, the paper's value, ours, and where ours is."""
    table = []
    for verdict in judge(rows):
        claim = claims_by_id()[verdict.claim]
        kind, name, key = SETTINGS.get(claim.id, ("", "", ""))
        here = {"cluster": f"conf/cluster/{name}.yaml, {key}", "scheme": f"scheme={name}, {key}"}.get(
            kind, verdict.reason
        )
        table.append(
            {
                "what": claim.statement,
                "paper": f"{claim.bounds[0]:g}" if claim.bounds else "",
                "ssfx": verdict.ours,
                "verdict": verdict.outcome,
                "where": here,
                "claim": claim.id,
            }
        )
    columns = {"what": "setting", "paper": "paper", "ssfx": "ssfx", "verdict": "verdict", "where": "where, or why not"}
    origin = "Read from the configuration files and the schemes' defaults; no run."
    return draw_table(NAME, TITLE, columns, table, out, origin=origin)


def finding(rows: list[Row]) -> str:
    """Return how many settings are the paper's."""
    found = judge(rows)
    same = sum(one.outcome == "agrees" for one in found)
    return f"{same} of {len(found)} settings are the paper's; {sum(not one.ours for one in found)} have no counterpart"


def judge(rows: list[Row]) -> list[Verdict]:
    """Return a verdict on every setting: agrees where ssfx takes the paper's value."""
    found = []
    for name in SETTINGS:
        claim = claims_by_id()[name]
        assert claim.bounds is not None
        found.append(compared(name, claim.bounds[0], _taken(*SETTINGS[name]), decimals=4, command=COMMAND))
    said = {name: Verdict(name, "not attempted", "", "none", reason=why) for name, why in NOT_TAKEN.items()}
    return [*found, *said.values()]


def _taken(kind: str, name: str, key: str) -> float:
    """Return the value that ssfx takes."""
    if kind == "scheme":
        return float(getattr(schemes[name].options({}), key))
    cluster = _cluster(name)
    if key == "GPUs":
        return float(cluster["nodes"] * cluster["devices_per_node"])
    first, _, second = key.partition(".")
    return float(cluster[first][second] if second else cluster[first])


@cache
def _cluster(name: str) -> Mapping[str, Any]:
    """Return the file of a cluster with what it takes over from others."""
    found: dict[str, Any] = yaml.safe_load((conf_dir() / "cluster" / f"{name}.yaml").read_text())
    others = [other for other in found.pop("defaults", []) if other != "_self_"]
    return {key: value for other in others for key, value in _cluster(other).items()} | found
