"""The models that come with ssfx, a line each in data/networks.json: definitions with random weights, no downloads.

Batch sizes are those of SSFusion's scripts, and those that the other papers print; GPT2-XL and BLOOM-3B have no printed
one and take GPT-2 large's. Those of models of 2026 and their sequences are those of single devices in public recipes.
"""

from __future__ import annotations

from ssfx.lab.workloads.base import Model, models, network
from ssfx.lab.workloads.samples import networks

for _name, _one in networks().items():
    _options = {key: tuple(value) if isinstance(value, list) else value for key, value in _one["network"].items()}
    _said = {key: value for key, value in _one.items() if key not in ("network", "sample", "size", "why")}
    models.add(Model(build=network(str(_options.pop("of")), **_options), **_said))
