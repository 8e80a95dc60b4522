"""ACP-SGD Table I: parameters of four models and what three compressors leave of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.common.claims.ledger import claims_by_id
from experiments.common.claims.verdicts import Verdict
from experiments.common.evaluation.judging import complete, held, number
from experiments.common.evaluation.low_rank import MODELS, of
from experiments.common.figures.tables import draw_table
from ssfx.compressors import build
from ssfx.core.rows import Row

NAME = "acpsgd.table1"
TITLE = "Model statistics and compression ratios"
COMMAND = f"ssfx figures {NAME}"

SIGNS, SPARSE = "acpsgd.table1.sign", "acpsgd.table1.topk"


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Write the paper's table with our value beside each of its own."""
    sign, values, _ = ratios()
    table = [
        {
            "model": f"{name} (rank {rank})",
            "params": of(name).numel / 1e6,
            "paper_params": number(f"acpsgd.table1.{key(name)}.params"),
            "sign": sign,
            "paper_sign": number(SIGNS),
            "topk": values,
            "paper_topk": number(SPARSE),
            "power": round(of(name).power_ratio, 2),
            "paper_power": number(f"acpsgd.table1.{key(name)}.power"),
        }
        for name, (_, rank) in MODELS.items()
    ]
    columns = {
        "model": "model", "params": "parameters\n(million)", "paper_params": "paper", "sign": "Sign-SGD\n(x)",
        "paper_sign": "paper", "topk": "Top-k\n(x)", "paper_topk": "paper", "power": "Power-SGD\n(x)",
        "paper_power": "paper",
    }  # fmt: skip
    return draw_table(NAME, TITLE, columns, table, out)


def judge(rows: list[Row]) -> Sequence[Verdict]:
    """Return a verdict on every number of the table and of the sentences about it."""
    sign, values, traffic = ratios()
    found = [
        held(SIGNS, sign, source="restated"),
        held(SPARSE, values, source="restated"),
        held("acpsgd.intro.quant_ratio", sign, source="restated"),
    ]
    only_values = "1000x counts values alone; with an index beside each value the traffic falls by 500x"
    found.append(held("acpsgd.intro.topk_ratio", (traffic, values), reason=only_values))
    power = [of(name).power_ratio for name in MODELS]
    found.append(held("acpsgd.fig2.ratio_range", (min(*power, sign, values), max(*power, sign, values))))
    for name in MODELS:
        found.append(held(f"acpsgd.table1.{key(name)}.params", of(name).numel / 1e6))
        rounding = "16.67 is cut to 16, not rounded, in the paper" if name == "BERT-Base" else ""
        found.append(held(f"acpsgd.table1.{key(name)}.power", of(name).power_ratio, reason=rounding))
    return complete(NAME, found, COMMAND)


def key(name: str) -> str:
    """Return a model as ids of claims call it."""
    return name.lower().replace("-", "")


def ratios() -> tuple[float, float, float]:
    """Return what signs save, and what Top-k saves: counting values alone, and with the indices that go with them."""
    numel = of("ResNet-50").numel // 1000 * 1000
    sign = 4 * numel / build("signsgd").layout(numel, 1.0).nbytes
    layout = build("topk").layout(numel, claims_by_id()["acpsgd.intro.topk_ratio"].conditions["density"])
    return sign, numel / layout.values, 4 * numel / layout.nbytes
