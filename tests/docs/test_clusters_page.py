"""The clusters that docs/clusters.md shows are those of conf/."""

import re
from pathlib import Path

import pytest
import yaml

from ssfx.core.paths import conf_dir

PAGE = Path(__file__).parents[2] / "docs" / "clusters.md"
SHOWN = {
    one["name"]: one
    for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    if "name" in (one := yaml.safe_load(block))
}


def without_sources(value):
    """Return the value without its sources, which the page shortens."""
    if isinstance(value, dict):
        return {key: without_sources(one) for key, one in value.items() if key != "source"}
    return value


@pytest.mark.parametrize("name", ["64gpu", "16gpu"])
def test_a_cluster_on_the_page_is_the_one_of_conf(name):
    real = yaml.safe_load((conf_dir() / "cluster" / f"{name}.yaml").read_text())
    shown = without_sources(SHOWN[name])
    assert shown == {key: value for key, value in without_sources(real).items() if key in shown}
    assert {"nodes", "name"} <= set(shown)
