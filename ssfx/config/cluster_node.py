"""The calibrations of a cluster's file: which numbers its node takes over, before options of the user replace them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from ssfx.core.errors import ConfigError, unknown
from ssfx.perf_model.cluster import Calibration

CALIBRATIONS: tuple[str, ...] = get_args(Calibration)
_SHAPE = ("nodes", "devices_per_node")


def calibrated(node: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cluster's node with the numbers of the calibration that the point chooses, or else its file.

    What was recorded describes the machine as it is: a point that describes other devices or links than the file gets
    nominal times. ConfigError for a calibration that the cluster does not have.
    """
    own, printed = node["calibration"], node.get("published")
    given = {key: value for key, value in point.items() if key.startswith("cluster.") and key != "cluster.calibration"}
    changed = [key for key in given if own == "recorded" and changes(node, key.partition(".")[2], given[key])]
    wanted = point.get("cluster.calibration", "nominal" if changed else own)
    if wanted not in CALIBRATIONS:
        raise unknown("calibration", str(wanted), CALIBRATIONS)
    if (wanted == "published" and not printed) or (wanted == "recorded" and own != "recorded"):
        raise ConfigError(f"cluster={node['name']} has no {wanted} calibration; use cluster.calibration=nominal")
    if wanted == "recorded" and changed:
        raise ConfigError(f"{changed[0]} does not change what was recorded; use cluster.calibration=nominal")
    found = dict(node)
    if wanted == "published" and printed:
        for key, value in printed.items():
            found[key] = {**found.get(key, {}), **value} if isinstance(value, Mapping) else value
        found["source"] = f"{node['source']}; {printed['source']}"
    return {**found, "calibration": wanted}


def changes(node: Mapping[str, Any], option: str, value: Any) -> bool:
    """Return whether `option` with `value` describes another cluster than `node`, in its calibration.

    The number of devices that a file leaves open is no property of the cluster, but the number of ranks. What was
    recorded is no line rate, so that even the one in the file is another description.
    """
    if option in _SHAPE:
        return node[option] not in ("auto", value)
    if node["calibration"] == "recorded":
        return True
    return bool(number(_at(node, option)) != number(value))


def number(value: Any) -> Any:
    """Return a number in the one form that equal numbers share."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _at(node: Any, path: str) -> Any:
    for key in path.split("."):
        node = node[key]
    return node
