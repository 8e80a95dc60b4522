"""Kinds of links by name: line rate, the share that collectives are reported to reach, latency, and who says so."""

import re
from functools import cache
from math import log
from typing import Any

from ssfx.core.errors import ConfigError
from ssfx.core.files import loads, read
from ssfx.core.numbers import gbps_of
from ssfx.core.paths import data_dir
from ssfx.perf_model.devices import device, has_sheet

FAMILIES = ("pcie", "nvlink")
"""Words for the kind of link that a device has; the device says which generation that is."""

_WORDS = {
    "ib infiniband": "^ib_",
    "edr": "^ib_.*_100",
    "hdr": "^ib_.*_200",
    "ndr": "^ib_.*_400",
    "roce rocev": "^roce_",
    "efa": "^efa_",
    "slingshot ss": "^slingshot_",
    "eth ethernet gbe ge g gb gbit gbps": "^(eth|roce)_",
    "wan internet sites": "^wan_",
    "rdma": "^(ib_rdma|roce|efa|slingshot)_",
    "tcp socket sockets": "_tcp",
    "plugin": "^eth_100_tcp$",
    "untuned": "_untuned$",
    "ipoib": "^ib_tcp",
    "nvlink nvl nvswitch sxm": "^nvlink",
    "pcie pci gen": "^pcie",
    "xgmi infinity fabric": "^infinity",
    "acs": "_acs_",
    "host": "_host",
}
"""Words in what people write, and the kinds that each of them may mean; all of them together mean a kind."""
_OTHERS = {
    r"gigabit|lan": "eth_1_tcp",
    r"wi-?fi|wlan": "eth_1_tcp cluster.inter.gbps=0.3 cluster.inter.latency_s=0.003",
    r"fib(re|er)|ftth": "eth_1_tcp cluster.inter.latency_s=0.01",
    r"tailscale|vpn|starlink|dsl|home": "eth_1_tcp cluster.inter.gbps=0.1 cluster.inter.latency_s=0.02",
    r"thunderbolt|usb4": "eth_10_tcp cluster.inter.gbps=20",
    r"xdr|connectx-?8|cx8": "ib_rdma_400 cluster.inter.gbps=800",
    r"connectx-?7|cx7|quantum-?2": "ib_rdma_400",
    r"connectx-?6|cx6": "ib_rdma_200",
    r"connectx-?5|cx5": "ib_rdma_100",
    r"spectrum-?x": "roce_400",
    r"efa": "efa_400",
    r"(gpudirect-?)?tcpx": "eth_100_tcp cluster.inter.gbps=200",
}
"""What people call links that are no family here, and the nearest by numbers."""
FASTEST_TCP_GBPS = 400
"""Beyond this rate people mean RDMA."""
_PATTERNS = {word: pattern for words, pattern in _WORDS.items() for word in words.split()}
_UNHEALTHY = {"_acs_": {"acs"}, "_host": {"host"}, "ib_tcp": {"ipoib"}, "_untuned": {"untuned"}}
"""Kinds that are slower than they could be, and the words without which they are not meant."""


def link_kind(name: str, on: str = "") -> dict[str, Any]:
    """Return kind, gbps, efficiency, latency_s, rdma and source of a kind of link, as people may call it.

    "pcie" and "nvlink" are those of the device `on`; ConfigError where it has none. switch_efficiency is there where
    the switch sums. ConfigError for a name that means none or several, with those.
    """
    found = full_name(name)
    if found in FAMILIES:
        found = _of_device(found, on)
    elif (
        (family := found[:6]) == "nvlink" and has_sheet(on) and _table().get(found) and _of_device(family, on) != found
    ):
        raise ConfigError(f"a node's {on} devices are joined by {_of_device(family, on)}, not {found}; use {family}")
    elif found.startswith("pcie") and has_sheet(on) and found[:5] > _of_device("pcie", on)[:5]:
        raise ConfigError(f"a node's {on} devices have {_of_device('pcie', on)}, and no {found}; use pcie")
    elif found.startswith("infinity") and has_sheet(on) and not on.startswith("mi"):
        raise ConfigError(f"{found} joins AMD's devices, not {on}; use {' or '.join(sorted(device(on).inside))}")
    if found in _table():
        return {"kind": found, **_table()[found]}
    if kinds := meant(name):
        said = ", ".join(f"{kind} ({_table()[kind]['gbps']:g} Gbit/s{_how(kind)})" for kind in kinds)
        raise ConfigError(f"{name} may be any of {said}; write one of them")
    said = name.lower()
    each = re.fullmatch(r"(?:(\d+) ?x ?)?(\d.*?)(?:[ _-]?(?:eth(?:ernet)?|tcp))?", name)
    if each and (gbps := gbps_of(each[2])):
        gbps /= 1e9 if gbps >= 1e6 else 1  # bit/s
        tcp = [kind for kind in _table() if kind.startswith("eth_" if gbps <= FASTEST_TCP_GBPS else "ib_rdma_")]
        close = min(tcp, key=lambda kind: abs(log(_table()[kind]["gbps"] / max(gbps, 1e-6))))
        several = f" cluster.nics_per_node={each[1]}" if each[1] else ""
        raise _nearest(name, f"{close} cluster.inter.gbps={gbps:g}{several}")
    if found := next((words for pattern, words in _OTHERS.items() if re.match(pattern, said)), ""):
        raise _nearest(name, found)
    if others := meant(re.sub(r"\d+", " ", name)):
        raise ConfigError(
            f"no kind of link is called {name!r}; there are {', '.join(others)}: write one, and its rate as gbps"
        )
    raise ConfigError(
        f"unknown kind of link {name!r}; write the nearest by numbers (ssfx list links), or what you measured: "
        "cluster.inter.gbps=10 cluster.inter.latency_s=0.00005"
    )


def _nearest(name: str, words: str) -> ConfigError:
    return ConfigError(f"unknown kind of link {name!r}; nearest by numbers: cluster.link={words}")


def _how(kind: str) -> str:
    return "" if kind.startswith(FAMILIES) else ", RDMA" if _table()[kind]["rdma"] else ", sockets"


def full_name(name: str) -> str:
    """Return the name in the table, or the family, that a word means, as 25gbe_tcp or hdr; any other word as it is."""
    if name in _table():
        return name
    kinds = meant(name)
    if len(kinds) == 1:
        return kinds[0]
    bare = [family for family in FAMILIES if kinds and all(kind.startswith(family) for kind in kinds)]
    return bare[0] if bare and not re.search(r"\d", name) else name


def meant(name: str) -> list[str]:
    """Return the kinds that a word may mean: those of its family, rate and health; none where it says no family."""
    plain = re.sub(r"(ib|infiniband)_(tcp|sockets?)", "ipoib", name.lower())
    words = set(re.findall(r"[a-z]+", plain)) - {"v", "x", "link"}
    words -= {"g", "gb", "gbit", "gbps"} if words & {"ib", "infiniband", "efa", "hdr", "ndr", "edr"} else set()
    if not words or not words <= set(_PATTERNS):
        return []
    kinds = [kind for kind in _table() if all(re.search(_PATTERNS[word], kind) for word in words)]
    kinds = [kind for kind in kinds if all(mark not in kind or words & said for mark, said in _UNHEALTHY.items())]
    rate = re.search(r"\d+", re.sub(r"(?<=roce)v\d|\.\d+", "", plain))
    return [kind for kind in kinds if rate is None or rate[0] in re.findall(r"\d+", kind)]


def link_lines() -> list[tuple[str, ...]]:
    """Return name, Gbit/s, share reached, latency and source of every kind, for `ssfx list links`."""
    return [
        (name, f"{one['gbps']:g}", f"{one['efficiency']:.0%}", f"{1e6 * one['latency_s']:g}", one["source"])
        for name, one in _table().items()
    ]


def _of_device(family: str, on: str) -> str:
    if not has_sheet(on):
        raise ConfigError(f"{family} differs by device; name the device, or one of {', '.join(_table())}")
    inside = device(on).inside
    if family not in inside:
        others = " or ".join(sorted(inside))
        raise ConfigError(f"a node's {on} devices are not joined by {family}; use {others}, or give the link's numbers")
    return inside[family]


@cache
def _table() -> dict[str, Any]:
    return dict(read(data_dir() / "links.json", loads))
