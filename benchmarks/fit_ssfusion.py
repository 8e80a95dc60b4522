"""Fits the calibration `fitted` to SSFusion's low-level numbers and writes it, with inputs and residuals.

Run it as `python benchmarks/fit_ssfusion.py`; `--check` compares with the file instead. Inputs are claims of the ledger
that `calibration_inputs` allows, so that no simulation is scored by them; what it gives is tested on Figs. 11 to 17,
 never the other way round.
"""

import json
import sys
from math import exp, log
from typing import Any

from experiments.common.claims.ledger import claims_by_id, used_by
from ssfx.core.files import loads, write_json
from ssfx.core.paths import data_dir
from ssfx.perf_model.cluster import TREE_SHARES
from ssfx.perf_model.shipped_profiles import load_shipped

PATH = data_dir() / "costs" / "ssfusion_fitted.json"
SMALL = 102_400
"""Elements below which the paper calls a tensor small (section III)."""
DEVICES_PER_NODE = 4
FIG9 = {"modelA": "bert_large", "modelB": "gpt2_large"}
"""Fig. 9 does not name its models; the ratio of its all-gathers, 2.35 to 2.39, is that of these two."""
FIG5 = {"resnet152": "resnet152_cifar100", "bertlarge": "bert_large", "gpt2large": "gpt2_large"}
FIG2 = {"a": "resnet152", "b": "bertlarge"}
SIZES_KB = (10, 100, 1000, 10_000)


def fit() -> dict[str, Any]:
    """Return the fitted numbers, the claims that they were fitted to, and how far each of these is off."""
    allowed = {name: claim for name, claim in claims_by_id().items() if used_by("fitted", claim)}
    numbers = {name: claim.bounds[0] for name, claim in allowed.items() if claim.bounds}
    used: list[str] = []

    def said(claim: str) -> float:
        used.append(claim)
        return float(numbers[claim])

    # Fig. 9: one bus bandwidth for eight levels. An all-reduce on two nodes passes each card once, along a tree.
    levels = {}
    for label, model in FIG9.items():
        nbytes = load_shipped(model).nbytes
        for gpus in (8, 64):
            nodes = gpus // DEVICES_PER_NODE
            levels[f"ssfusion.fig9.{label}.ag{gpus}"] = (gpus - 1) * nbytes
            passes = 1 / TREE_SHARES[-1][1] if nodes == 2 else 2 * (gpus - 1) / gpus
            levels[f"ssfusion.fig9.{label}.ar{gpus}"] = passes * nbytes
    rate = _mean([nbytes / said(claim) for claim, nbytes in levels.items()])
    residuals = {claim: nbytes / rate / numbers[claim] - 1 for claim, nbytes in levels.items()}

    # Figs. 2 and 5, Table III: one time of a call on a small tensor.
    calls = {"ssfusion.table3.gpu.10kb": 1e-3 * said("ssfusion.table3.gpu.10kb")}
    for label, model in FIG5.items():
        small = sum(0 < n < SMALL for n in load_shipped(model).numel)
        claims = [f"ssfusion.fig5.{label}.{how}" for how in ("per", "sel")]
        calls[f"{claims[0]} - {claims[1]}"] = (said(claims[0]) - said(claims[1])) / small
    whole = {}
    for panel, label in FIG2.items():
        profile = load_shipped(FIG5[label])
        iteration_s, share = numbers[f"ssfusion.fig5.{label}.per"], said(f"ssfusion.fig2.{panel}.per.share") / 100
        calls[f"ssfusion.fig2.{panel}.per.share"] = share * iteration_s / len(profile.tensors)
        fused = said(f"ssfusion.fig2.{panel}.fd100.share") / 100
        whole[sum(profile.numel)] = fused * (1 - share) * iteration_s / (1 - fused)
    call_s = _mean(list(calls.values()))
    residuals |= {f"call by {name}": call_s / seconds - 1 for name, seconds in calls.items()}

    # Table III gives the shape up to 2.5 million elements; Fig. 2, all tensors fused, the time of a whole model.
    printed = {place: [1e-3 * said(f"ssfusion.table3.{place}.{kb}kb") for kb in SIZES_KB] for place in ("gpu", "cpu")}
    sizes = [kb * 1000 // 4 for kb in SIZES_KB]
    scale = call_s / printed["gpu"][0]
    encode = {**dict(zip(sizes, [scale * s for s in printed["gpu"]], strict=True)), **whole}
    return {
        "busbw_gbps": round(8e-9 * rate, 2),
        "call_ms": round(1e3 * call_s, 4),
        "encode": {"sizes": sorted(encode), "seconds": [round(encode[size], 6) for size in sorted(encode)]},
        "host": {"sizes": sizes, "seconds": [round(scale * s, 6) for s in printed["cpu"]]},
        "claims": sorted(set(used)),
        "residuals": {name: round(value, 3) for name, value in residuals.items()},
    }


def table(found: dict[str, Any]) -> dict[str, Any]:
    """Return the file of costs: the fit, and the curves in the form of the other papers'."""
    like = json.loads((data_dir() / "costs" / "ssfusion.json").read_text())
    return {
        "origin": {
            "kind": "fitted",
            "hardware": like["origin"]["hardware"],
            "date": "2026",
            "note": "fitted to SSFusion (ICDE 2026) Fig. 2, Fig. 5 and Table III by benchmarks/fit_ssfusion.py",
        },
        "curves": {"dgc": {"encode": found["encode"], "host": found["host"]}},
        "calls": [],
        "every": like["every"],
        "beyond": "linear beyond the largest model of Fig. 2",
        "fit": {key: found[key] for key in ("busbw_gbps", "call_ms", "claims", "residuals")},
    }


def _mean(values: list[float]) -> float:
    """Return the geometric mean, which is as far from the least as from the greatest, relatively."""
    return exp(sum(map(log, values)) / len(values))


def main() -> None:
    """Print the fit with its residuals; write it, or compare with --check."""
    found = fit()
    text = json.dumps(table(found), indent=1) + "\n"
    print(f"bus bandwidth {found['busbw_gbps']} Gbit/s, a compressor call {found['call_ms']} ms")
    for name, value in found["residuals"].items():
        print(f"{value:+7.1%}  {name}")
    if "--check" in sys.argv:
        sys.exit(0 if loads(PATH.read_text()) == loads(text) else f"{PATH} is not what the fit gives now")
    write_json(PATH, text)


if __name__ == "__main__":
    main()
