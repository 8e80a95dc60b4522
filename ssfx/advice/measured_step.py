"""From the seconds of a step on one device and on all of them to the bandwidth that they have."""

from dataclasses import replace
from math import inf, log10

from ssfx.advice.break_even import MARKS, STEPS, highest_crossing, rate
from ssfx.advice.setting import Setting
from ssfx.core.errors import ConfigError
from ssfx.core.numbers import rounded


def with_step(setting: Setting, step_s: float) -> Setting:
    """Return the setting at the rate at which torch's DDP, or its sharding, takes `step_s` by simulation.

    ConfigError for a step that no rate explains.
    """
    said, devices, ms = setting.gbps, setting.cluster.world_size, 1e3 * step_s

    def left_s(step: int) -> float:
        """Return what a simulated step at this rate lacks to the measured one; it grows with the rate."""
        return step_s - setting.at(rate(step)).as_it_comes().iteration_s

    if step_s <= setting.alone_s:
        raise ConfigError(
            f"cluster_iteration_ms={ms:g} is no longer than a step of one device, {1e3 * setting.alone_s:.4g} ms: no "
            "exchange is waited for, and none can be shortened"
        )
    found = highest_crossing(left_s, sorted({*MARKS, round(STEPS * log10(said))})).gbps
    if found in (0.0, inf):
        raise ConfigError(
            f"cluster_iteration_ms={ms:g}: no bandwidth from {rate(MARKS[0]):g} to {rate(MARKS[-1]):g} Gbit/s makes "
            f"such a step on {setting.cluster.name}; look at what else {devices} devices wait for, data for example"
        )
    found = float(f"{found:.3g}")
    text = f"{rounded(1e3 * setting.alone_s, 3)} ms alone, {rounded(ms, 3)} on {devices}: a link of {found:g} Gbit/s"
    why = ": find out why first" if found < said / 2 else ""
    return replace(setting.at(found), measured=f"{text}, the cluster has {rounded(said, 3)}{why}")
