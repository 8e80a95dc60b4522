"""What people call machines and models that ssfx does not have, and the nearest by numbers that it has."""

import re
from math import inf, log

from ssfx.core.errors import OWNER, ConfigError, plain
from ssfx.core.numbers import gbps_of
from ssfx.perf_model.devices import device, device_names
from ssfx.perf_model.links import FAMILIES as OF_DEVICES
from ssfx.perf_model.links import meant

_SXM = "cluster.nodes=2 cluster.devices_per_node=8 cluster.inside=nvlink cluster.device="
_PCIE = "cluster.nodes=2 cluster.devices_per_node=4 cluster.inside=pcie cluster.device="
MACHINES = {
    r"p4d(\.24xlarge)?": f"{_SXM}a100_40gb cluster.link=efa_100 cluster.nics_per_node=4",
    r"p4de(\.24xlarge)?": f"{_SXM}a100 cluster.link=efa_100 cluster.nics_per_node=4",
    r"p5en?(\.48xlarge)?": f"{_SXM}h200 cluster.link=efa_400",
    r"p6-?b200(\.48xlarge)?": f"{_SXM}b200 cluster.link=efa_400",
    r"ndv5": f"{_SXM}h100 cluster.link=ib_rdma_400",
    r"(?:standard_)?nd96is[rf]_(h\d00)_v5": f"{_SXM}{{0}} cluster.link=ib_rdma_400",
    r"a3-?(high(gpu)?)?(-8g)?": f"{_SXM}h100 cluster.link=eth_100_tcp cluster.inter.gbps=200 cluster.nics_per_node=4",
    r"a3-?ultra(gpu)?(-8g)?": f"{_SXM}h200 cluster.link=roce_400",
    r"[dh]gx[_-]?a100": f"{_SXM}a100 cluster.link=ib_rdma_200",
    r"[dh]gx[_-]?(h100|h200|b200)": f"{_SXM}{{0}} cluster.link=ib_rdma_400",
    r"[dh]gx[_-]?b300": f"{_SXM}b300 cluster.link=ib_rdma_400 cluster.inter.gbps=800",
    r".*gb200.*": "cluster.nodes=1 cluster.devices_per_node=72 cluster.inside=nvlink cluster.device=gb200",
    r"(dgx[_-]?)?spark": "cluster.nodes=2 cluster.devices_per_node=1 cluster.device=gb10 cluster.link=roce_200",
    r"g4dn(\.\d*x?large|\.metal)?": f"{_PCIE}t4 cluster.link=eth_40_tcp cluster.inter.gbps=50",
    r"g5(\.\d*x?large)?": f"{_PCIE}a10g cluster.link=eth_40_tcp",
    r"g6(\.\d*x?large)?": f"{_PCIE}l4 cluster.link=eth_40_tcp",
    r"g6e(\.\d*x?large)?": f"{_PCIE}l40s cluster.link=eth_100_tcp",
    r"g7e(\.\d*x?large)?": f"{_PCIE}rtx_pro_6000 cluster.link=efa_400",
    r"a2-?(high|mega|ultra)gpu(-\dg)?": f"{_SXM}a100 cluster.link=eth_100_tcp",
    r"a4-?(high(gpu)?)?(-8g)?": f"{_SXM}b200 cluster.link=roce_400",
    r"p3dn(\.24xlarge)?": f"{_SXM}v100 cluster.link=eth_100_tcp",
    r"p3(\.\d*x?large)?": f"{_SXM}v100 cluster.link=25gbe_tcp",
    r"internet|wan|geo(distributed)?|multi[_-]?(site|region|dc)": (
        "cluster.nodes=2 cluster.devices_per_node=8 cluster.device=a100 cluster.inside=nvlink cluster.link=wan_1"
    ),
    r"home|lan|office": "cluster.nodes=2 cluster.devices_per_node=1 cluster.device=rtx4090 cluster.link=eth_1_tcp",
}
"""Machines that were not measured for ssfx, and the words that describe them by data sheets."""
DECODERS = {
    **{"gpt2": 0.124, "gpt2_large": 0.774, "gpt2_xl": 1.56, "qwen3_1_7b": 1.7, "bloom_3b": 3.0},
    **{"llama3_8b": 8.0, "qwen3_8b": 8.2},
}
"""Billions of parameters of models that decode text; those of experts count all of them."""
EXPERTS = {"olmoe_1b_7b": 6.9, "gpt_oss_20b": 20.9, "qwen3_30b_a3b": 30.5}
ENCODERS = {"bert_base": 0.11, "bert_large": 0.34}
DIFFUSERS = {"dit_xl": 0.67}
FAMILIES = {
    "diffusion|sdxl|flux|dit|unet|wan\\d": DIFFUSERS,
    "mixtral|deepseek|kimi|glm|gpt_?oss|minimax|moe|a\\d+b|\\dx\\d": EXPERTS,
    "t5|[a-z]*bert|electra|minilm|bge": ENCODERS,
    "[a-z]*vit|clip|dino|swin|deit|siglip|beit|mae": {"vit_large": 0.3, "vit_huge": 0.63},
    "whisper|wav2vec|hubert|conformer|parakeet": {"whisper_large": 1.54},
    "resnet|resnext|efficientnet|convnext|mobilenet|regnet|densenet|inception|alexnet|yolo|cnn|vgg": {
        **{"resnet50": 0.0256, "resnet101": 0.0445, "resnet152": 0.06, "vgg16": 0.138, "vgg19": 0.144}
    },
    "lstm|gru|rnn|gnmt": {"lstm_650": 0.048, "gnmt8": 0.19, "gnmt16": 0.28},
    "gpt|llama|qwen|mistral|gemma|phi|claude|falcon|opt|bloom|mamba|rwkv|smollm|olmo|grok|llm|lm|transformer": DECODERS,
}
SIZES = {
    **{"gpt2_medium": 0.355, "gpt3": 175.0, "deepseek_v3": 671.0, "deepseek_r1": 671.0, "deepseek": 671.0},
    **{"t5_small": 0.06, "t5_base": 0.22, "t5_large": 0.77, "t5": 0.22, "mixtral": 46.7, "mixtral_8x7b": 46.7},
    **{"stable_diffusion": 0.86, "sdxl": 2.6, "flux": 12.0, "nanogpt": 0.124, "gemma": 8.5, "gpt_j": 6.1},
    **{"kimi_k2": 1000.0, "glm_4_5_air": 106.0, "whisper_small": 0.244, "distilbert": 0.066},
    **{"roberta_base": 0.125, "roberta_large": 0.355, "deberta_large": 0.4, "mistral": 7.2, "phi3": 3.8},
}
"""Billions of parameters of models that do not say them in their names, or say others."""
_COUNTS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
OWN = "or count your own: model=FILE.py:FUNCTION; ssfx list models has all"
ALIKE = 2.5
"""A model of so many times the parameters, or of so many times fewer, is another thing."""


def machine(name: str) -> str:
    """Return the words of a cluster=box that a machine, an instance of a cloud or a device is; "" for others."""
    for pattern, words in MACHINES.items():
        if found := re.fullmatch(pattern, name.lower()):
            whole = name.lower().endswith(("48xlarge", "metal"))  # of instances with fewer GPUs
            words = words.replace("node=4", "node=8").replace("eth_40_tcp", "eth_100_tcp") if whole else words
            return words.format(*found.groups())
    on = _device(name) if re.search(r"\d", name) else ""
    if not on:
        inside_of = [one for one in device_names() if re.search(r"\d", one) and plain(one) in plain(name)]
        on = max(inside_of, key=len, default="")
    inside = "nvlink" if on and "nvlink" in device(on).inside else "pcie"
    words = (
        f"cluster.nodes=2 cluster.devices_per_node=8 cluster.device={on} cluster.inside={inside} cluster.link=25gbe_tcp"
    )
    return words if on else ""


def no_sheet(name: str) -> bool:
    """Return whether a name is of an accelerator that is no GPU, of which ssfx has no data sheet."""
    return bool(re.match(r"tpu|v\d[ep]|trn|train|inf\d|gaudi|hpu|ascend|mac|apple|m\d|groq|cerebras", name.lower()))


def as_a_link(name: str) -> str:
    """Return the words of a cluster=box whose nodes are joined by what `name` is called; "" if that is no link."""
    kinds = [kind for kind in meant(name) if not kind.startswith(OF_DEVICES)]
    box = "cluster.nodes=2 cluster.devices_per_node=8 cluster.device=a100 cluster.inside=nvlink cluster.link="
    return f"{box}{kinds[0]}" + "".join(f", or {kind}" for kind in kinds[1:]) if kinds else ""


def digits(name: str) -> str:
    """Return a name with numbers for their words, in lower case: "2 3090s" for "two 3090s"."""
    counted = re.sub("|".join(_COUNTS), lambda word: str(_COUNTS.index(word[0]) + 1), name.lower())
    return counted.replace("single", "1").replace("dual", "2").replace("quad", "4")


def described(name: str) -> str:
    """Return the words of a cluster=box that "2x4090", "4x8xH100-SXM" or "two 3090s" is; "" if it names no device."""
    counted = digits(name)
    number, by = r"(\d+)\s?", r"[x_ -]\s?"
    name = r"(?:nvidia[ _-])?(\w*?\d[\w ]*?)s?(-sxm\d?|-pcie)?(?:[-_@+, ](.+))?"
    said = re.fullmatch(rf"{number}{by}(?:{number}{by})?{name}", counted)
    names: tuple[str, ...] = (f"{said[3]}_{said[5]}", said[3], f"rtx{said[3]}") if said else ()
    on = next((one for word in names if (one := _device(word.strip("_ ")))), "")
    if not said or not on:
        return ""
    nodes, each = (int(said[1]), int(said[2])) if said[2] else (1, int(said[1]))
    if not said[2] and each > 8:
        nodes, each = (each // 8, 8) if each % 8 == 0 else (each, 1)
    words = f"cluster.nodes={nodes} cluster.devices_per_node={each} cluster.device={on} cluster.inside="
    nvlink = "nvlink" in device(on).inside and "pcie" not in (said[4] or "")
    words += "nvlink" if nvlink and said[4] else "pcie"
    apart = ", or as many nodes of one on cluster.link=eth_1_tcp" if (nodes, each) == (1, 2) else ""
    memory = re.fullmatch(r"\d+gb", said[5] or "")
    words += f" cluster.link={link_in('' if memory else said[5] or '')}" if nodes > 1 else apart
    if memory and not _device(names[0]):
        words += f"; {on} has {device(on).memory_gib:g} GB: mind FITS"
    return words + ("; SXM modules have cluster.inside=nvlink" if nvlink and not said[4] else "")


def link_in(text: str) -> str:
    """Return the link between nodes that is said at the end of a name, else the usual one."""
    return ", or ".join(meant(text)) or f"25gbe_tcp{f' cluster.inter.gbps={gbps:g}' if (gbps := gbps_of(text)) else ''}"


def _device(word: str) -> str:
    try:
        return device(word).name
    except ConfigError:
        return ""


def model_of_size(name: str) -> str:
    """Return which models have about the size that `name` says, in a sentence; "" where it says none."""
    text = OWNER.sub("", name).lower()
    word = re.sub(r"[^a-z0-9]+", "_", text)
    said = re.search(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)[_ -]?([bm])(?![a-z0-9])", text.replace("_", "-"))
    size = SIZES.get(word, float(said[1]) * (1.0 if said[2] == "b" else 1e-3) if said else inf)
    if size == inf:
        return ""
    among = _kin(word) or DECODERS
    near = sorted((abs(log(other / size)), model) for model, other in among.items())
    found = [f"{model} ({among[model]:g} B)" for far, model in near if far <= log(ALIKE)][:3]
    nearest = f"nearest by size: {', '.join(found)}" if found else f"none here is near its {size:g} B parameters"
    return f"{nearest}; {OWN}"


def model_of_kind(name: str) -> str:
    """Return which models are of the kind that `name` says, with their sizes, and how to count one's own."""
    kin = _kin(re.sub(r"[^a-z0-9]+", "_", OWNER.sub("", name).lower()))
    sizes = ", ".join(f"{model} ({size:g} B)" for model, size in kin.items())
    return f"of its kind, in other sizes, there are {sizes}; {OWN}" if kin else f"no name here is like it; {OWN}"


def _kin(word: str) -> dict[str, float]:
    return next((kin for pattern, kin in FAMILIES.items() if re.search(rf"(?<![a-z])({pattern})", word)), {})
