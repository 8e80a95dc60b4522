"""The calibrations of a cluster's file: which numbers its node takes over, before options of the user replace them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from ssfx.cluster import Calibration
from ssfx.errors import ConfigError, unknown

CALIBRATIONS: tuple[str, ...] = get_args(Calibration)
_SHAPE = ("cluster.nodes", "cluster.devices_per_node")


def calibrated(node: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cluster's node with the numbers of the calibration that the point chooses, or else its file.

    What was recorded describes the machine as it is: a point that describes other devices or links than the file gets
    nominal times. ConfigError for a calibration that the cluster does not have.
    """
    own, printed = node["calibration"], node.get("published")
    changed = [key for key in point if key.startswith("cluster.") and key not in (*_SHAPE, "cluster.calibration")]
    wanted = point.get("cluster.calibration", "nominal" if own == "recorded" and changed else own)
    if wanted not in CALIBRATIONS:
        raise unknown("calibration", str(wanted), CALIBRATIONS)
    if (wanted == "published" and not printed) or (wanted == "recorded" and own != "recorded"):
        raise ConfigError(f"cluster={node['name']} has no {wanted} calibration; use cluster.calibration=nominal")
    if wanted == "recorded" and changed:
        raise ConfigError(f"{changed[0]} does not change what was recorded; add cluster.calibration=nominal")
    found = dict(node)
    if wanted == "published" and printed:
        for key, value in printed.items():
            found[key] = {**found.get(key, {}), **value} if isinstance(value, Mapping) else value
        found["source"] = f"{node['source']}; {printed['source']}"
    return {**found, "calibration": wanted}
