"""MergeComp section 5: the server and the defaults, beside what conf/ has for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.ledger import claims_of
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.configured import cluster, experiment, judge_setup, memory_gb, workload
from experiments.common.evaluation.judging import complete, says
from experiments.common.evaluation.pages import draw_claims
from ssfx.compressors import build
from ssfx.core.rows import Row

NAME = "mergecomp.text.setup"
TITLE = "Server and defaults of MergeComp"
COMMAND = f"ssfx figures {NAME}"

SERVER = "mergecomp_pcie"
PCIE_3_GBPS_PER_LANE = 126.0 / 16
"""8 GT/s with 128/130 coding."""


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write every setting beside what is configured here."""
    return draw_claims(NAME, TITLE, judge(rows), out, origin="From the configuration of ssfx (conf/); no run.")


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every setting, and on the definition of the scaling factor."""
    key = "mergecomp.setup"
    here = {
        f"{key}.gpus": lambda: float(cluster(SERVER).world_size),
        f"{key}.gpu_mem": lambda: memory_gb(SERVER),
        f"{key}.pcie_lanes": lambda: cluster(SERVER).intra.gbps / PCIE_3_GBPS_PER_LANE,
        f"{key}.batch": lambda: float(workload("resnet50_cifar10")["batch_size"]),
        f"{key}.sparsity": lambda: 100 * (1 - experiment("mergecomp_groups")["density"]),
        f"{key}.qsgd_bits": qsgd_bits,
    }
    why = {
        f"{key}.batch_seg": "Mask R-CNN is not simulated; conf/workload/mask_rcnn_synthetic.yaml trains it",
        f"{key}.models": "all three are here; Mask R-CNN is trained, not simulated",
        f"{key}.cores": "the cores of the host are no part of the description of a cluster here",
        f"{key}.runs": "a simulated step has no spread, so there is nothing to average",
        f"{key}.Ys": "a list of settings, not a value; scheme.max_groups takes any of them",
        f"{key}.e2e_gpus": "quality is trained here on fewer workers than the paper's",
    }
    setup = [one for one in judge_setup(NAME, here, why) if one.claim != "mergecomp.def.sf"]
    definition = says(
        "mergecomp.def.sf", "agrees", "T_n / (n T_1)",
        "a definition, used here as it stands: throughput over n times that of one device alone", source="restated",
    )  # fmt: skip
    assert len(setup) + 1 == len(claims_of(NAME))
    return complete(NAME, [*setup, definition], COMMAND)


def qsgd_bits() -> float:
    """Return the bits that QSGD sends for an element of a long vector here."""
    numel = 1 << 20
    return round(8 * build("qsgd").layout(numel, 1.0).code_bytes / numel, 6)
