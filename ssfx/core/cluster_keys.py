"""The keys that a file of conf/cluster/ may have."""

from ssfx.core import slurm_site
from ssfx.core.yaml_file import Keys

REQUIRED = (
    "summary",
    "nodes",
    "devices_per_node",
    "device",
    "nics_per_node",
    "intra",
    "inter",
    "source",
    "calibration",
)
"""What the file must say, with the files that it continues."""

OTHER_NAMES = {
    **dict.fromkeys(
        ("gpus_per_node", "ranks_per_node", "cards_per_node", "gpus", "devices", "gpus_per_host", "num_gpus"),
        "devices_per_node",
    ),
    **dict.fromkeys(("bandwidth", "bandwidth_gbps", "rate", "bw", "speed", "gbit", "line_rate"), "gbps"),
    **dict.fromkeys(("nics", "cards", "nics_per_host", "num_nics"), "nics_per_node"),
    **dict.fromkeys(("num_nodes", "hosts", "machines", "servers"), "nodes"),
    **dict.fromkeys(("network", "interconnect", "internode", "inter_node"), "inter"),
    **dict.fromkeys(("intranode", "intra_node", "inside", "nvlink"), "intra"),
    **dict.fromkeys(("gpu", "accelerator", "gpu_type"), "device"),
    **dict.fromkeys(("latency", "latency_us", "latency_ms", "alpha"), "latency_s"),
}
"""What people call some of the keys, and their names."""

_LINK: Keys = dict.fromkeys(("link", "gbps", "efficiency", "latency_s", "rdma", "switch_efficiency"))
_NUMBERS: Keys = {
    **dict.fromkeys(
        (
            "nodes",
            "devices_per_node",
            "device",
            "nics_per_node",
            "source",
            "factors",
            "codec_times",
            "busbw_gbps",
            "small_allreduce_us",
            "compressor_call_ms",
            "message_us",
            "host_us",
        )
    ),
    "intra": _LINK,
    "inter": _LINK,
}
CLUSTER_KEYS: Keys = {
    **_NUMBERS,
    "name": None,
    "summary": None,
    "calibration": None,
    "exchanges": None,
    "published": _NUMBERS,
    "fitted": _NUMBERS,
    "slurm": dict.fromkeys(name.removeprefix(slurm_site.PREFIX) for name in slurm_site.OPTIONS),
}
