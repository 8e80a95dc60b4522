"""What a run's scheme and compressor say of its method: words, collective, and whether a tensor has its own call."""

from ssfx.compressors import build
from ssfx.core.rows import Row
from ssfx.core.spec import Spec
from ssfx.lab.calibration.long_runs import is_dense, usual_memory

REDUCERS = {
    "micro": "micro",
    "spardl": "spar_reduce_scatter",
    "oktopk": "ok_topk",
    "ddp_quantized": "quantized_all_reduce",
    "ddp_bf16": "quantized_all_reduce",
}
"""Schemes whose plans are of one reducer, and its name."""
WHOLE = ("fused_all", "ddp_fp16", "acpsgd", "powersgd", *REDUCERS)
"""Schemes that compress a message as a whole. Their runs, and those of per_tensor, are those of one method alone."""
WORDS = {
    ("fp16", "joint"): "in 16 bits",
    ("bf16", "joint"): "in 16 bits (bfloat16)",
    ("dgc", "each"): "top-k of each tensor gathered",
    ("dgc", "joint"): "top-k of several tensors gathered",
    ("topk", "each"): "exact top-k of each tensor gathered",
    ("ef_signsgd", "each"): "signs with error feedback",
    ("block_topk", "joint"): "top blocks of several tensors gathered",
    ("fp8", "each"): "8-bit floats (fp8)",
    ("quantized_all_reduce", "joint"): "8-bit floats (fp8)",
    ("acpsgd", "joint"): "low rank, factors in turns (ACP-SGD)",
    ("powersgd", "joint"): "low rank (PowerSGD)",
    ("micro", "joint"): "disjoint shards (MiCRO) of several tensors",
    ("spar_reduce_scatter", "joint"): "sparse reduce-scatter (SparDL) of several tensors",
    ("ok_topk", "joint"): "sparse regions (Ok-Topk) of several tensors",
}
"""Words for a method by its compressor, or its reducer, and its compressor calls; others are called by their spec."""
BITS = {4: "four", 8: "eight"}
"""Words for the bits of qsgd."""


def said_of(scheme: str, spec: str) -> dict[str, str]:
    """Return words, collective and compressor calls of the method that a scheme's runs with a compressor are."""
    calls = "each" if scheme == "per_tensor" else "joint"
    collective = REDUCERS.get(scheme, "all_reduce" if build(spec).additive else "all_gather")
    given = Spec.parse(spec, "compressor")
    words = WORDS.get((REDUCERS.get(scheme, given.name), calls), spec)
    if given.name in ("qsgd", "onebit"):
        words = "one bit an element" if given.name == "onebit" else f"{BITS[build(spec).options.bits]} bits an element"
    if build(spec).additive and collective == "quantized_all_reduce":
        words = f"{WORDS[given.name, calls]}, summed in 32"
    elif collective == "quantized_all_reduce":
        words += ", quantised on the way"
    rank = given.options.get("rank", "")
    return {"words": f"{words} of rank {rank}" if rank else words, "collective": collective, "calls": calls}


def is_one_method(row: Row) -> bool:
    """Return whether a run is of one method alone, which feeds errors back as it does unless somebody asks."""
    return (
        not is_dense(row)
        and row.case.compressor is not None
        and usual_memory(row)
        and row.case.scheme in ("per_tensor", *WHOLE)
    )
