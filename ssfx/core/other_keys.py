"""What people call keys, and what to write: by a whole name, or else by a word that it is made of."""

import re
from difflib import SequenceMatcher

from ssfx.core.cluster_keys import OTHER_NAMES
from ssfx.core.errors import near, plain

LINK_KEYS = ("gbps", "latency_s")
_RANKS = "world_size, or cluster.nodes and cluster.devices_per_node"
_COMPRESSOR = "compressor=NAME(option=value), as compressor=powersgd(rank=4)"
_NAMES = {
    **{other: f"cluster.{key if key not in LINK_KEYS else f'inter.{key}'}" for other, key in OTHER_NAMES.items()},
    **dict.fromkeys(("rank", "bits"), _COMPRESSOR),
    **dict.fromkeys(("network", "interconnect", "internode"), "cluster.link"),
    **dict.fromkeys(("intranode", "inside", "nvlink"), "cluster.inside"),
    **dict.fromkeys(("gpus", "devices", "ranks", "num_gpus", "ngpus", "data_parallel_size", "dp_size", "dp"), _RANKS),
    **dict.fromkeys(("k", "topk", "top_k"), "density, the share that is kept, which is k over all parameters"),
    "iteration_s": "iteration_ms",
    **dict.fromkeys(("num_workers", "pin_memory"), "loading data costs no time in advice and simulations: drop it"),
}
"""Names that mean something else than their words do."""
_MEANT = (
    ("global total effective", "batch_size, that of a rank"),
    ("accum acc accumulate accumulation microbatches batches", "accumulate"),
    ("micro microbatch", "accumulate, their number, or batch_size, of one"),
    ("batch minibatch bs mbs", "batch_size"),
    ("zero fsdp hsdp deepspeed stage", "sharding, as sharding=fsdp"),
    (
        "tp pp ep cp parallel parallelism",
        "ssfx exchanges gradients of data parallel ranks and prices nothing else: drop it",
    ),
    ("nproc cards count", "cluster.devices_per_node"),
    ("nodes hosts machines servers nnodes", "cluster.nodes"),
    ("gpus workers procs processes devices ranks", _RANKS),
    ("lora peft frozen", "model=FILE.py:FUNCTION, whose frozen weights need no gradient"),
    (
        "seq seqlen sequence context ctx length token tokens hidden layer layers heads vocab dim width depth block "
        "image resolution params parameters",
        "model=FILE.py:FUNCTION, with a batch of that shape",
    ),
    ("checkpointing recompute recomputation remat offload", "iteration_ms, of a step that was measured so"),
    ("mfu flops tflops utilization", "iteration_ms, the step of one device, as you measured it"),
    ("rtt ping latency delay", "cluster.inter.latency_s, in seconds"),
    ("time ms duration", "iteration_ms"),
    ("dtype amp fp16 bf16 fp8 half precision", "precision"),
    ("opt optim optimiser", "optimizer"),
    ("learning", "lr"),
    ("sparsity", "density, the share that is kept, which is 1 less the sparsity"),
    ("ratio compression", "density, the share that is kept"),
    ("clip clipping", "clip_norm"),
    ("bandwidth gbit mbit mbps bw speed", "cluster.inter.gbps"),
    ("fabric nic rdma roce infiniband ib ethernet tcp topology switch", "cluster.link"),
    ("compile compiled graphs", "cluster.host_us=0"),
    ("bucket", "scheme.bucket_cap_bytes"),
    ("architecture arch kind", "family"),
    ("output out save logging results", "results are in ./results: write SSFX_RESULTS=DIR before the command"),
    ("root dir path", "data.root"),
    ("resume", "the same command again, which goes on where it stopped; drop it"),
    ("epoch epochs", "steps, of which an epoch has its samples over world_size and over batch_size"),
    ("iter iters iterations steps", "steps"),
)
"""Words of a key, and what to write; the first line that has a word of it counts."""


def other_key(name: str) -> str:
    """Return what to write for what people call a key otherwise; "" for a name without a meaning."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    if name in _NAMES:
        return _NAMES[name]
    words = set(re.findall(r"[a-z]+[0-9]*", name.replace("_", " ")))
    return next((key for said, key in _MEANT if words & set(said.split())), "")


def spelt(name: str, keys: list[str]) -> bool:
    """Return whether `name` is a slip of the pen in a key, so that its words say nothing else."""
    return any(SequenceMatcher(None, plain(name), plain(key)).ratio() > 0.9 for key in near(name, keys))
