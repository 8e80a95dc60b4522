"""The public keys are a golden file; conf/ and the schema name the same ones."""

from pathlib import Path

import yaml

from ssfx.config.compose import compose
from ssfx.config.groups import GROUPS, YAML_GROUPS, choices, file_summary
from ssfx.config.keys import public_keys
from ssfx.config.schema import KEYS, Settings
from ssfx.core.paths import conf_dir

GOLDEN = Path(__file__).parent / "golden_keys.txt"


def test_public_keys_are_the_golden_ones():
    """Regenerate on purpose: python -m ssfx.config.keys > tests/config/golden_keys.txt"""
    assert public_keys() == GOLDEN.read_text().split()


def test_conf_gives_every_typed_key_a_default():
    assert Settings.of(compose({}))


def test_conf_has_no_key_without_a_type():
    for path in [
        conf_dir() / "config.yaml",
        *(conf_dir() / "workload").glob("*.yaml"),
        *(conf_dir() / "experiment").glob("*.yaml"),
    ]:
        keys = set(yaml.safe_load(path.read_text())) - {"defaults"}
        assert keys <= {*KEYS, *GROUPS}, path.name


def test_every_choice_of_a_folder_has_a_name_like_its_file_and_a_summary():
    for group in YAML_GROUPS:
        for name in choices(group):
            text = yaml.safe_load((conf_dir() / group / f"{name}.yaml").read_text())
            node = text.get(group) or text
            assert node["name"] == name
            assert file_summary(group, name) == node["summary"]
