"""What cannot be measured is refused in one line, before anything is started."""

import pytest

from ssfx.core.errors import ConfigError
from ssfx.lab.config.profiles import resolve_compressors, resolve_network


def test_what_is_asked_for():
    assert resolve_network(["cluster=local", "world_size=4"]) == ("local", 4)
    assert resolve_compressors(["ranks=4"]) == 4


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["cluster=64gpu"], "cluster=64gpu is not here"),
        (["cluster=locl"], "local"),
        (["clusster=local"], "did you mean 'cluster'"),
        (["density=0.1"], "density has no effect on this measurement"),
        (["cluster=local", "cluster=local"], "given twice"),
        (["world_size=two"], "whole number"),
        (["world_size=1"], "world_size=2"),
        (["local"], "not key=value"),
    ],
)
def test_networks_that_cannot_be_measured(words, text):
    with pytest.raises(ConfigError, match=text):
        resolve_network(words)


def test_without_root_there_are_no_emulated_hosts(monkeypatch):
    monkeypatch.setattr("ssfx.lab.engines.hosts.missing", lambda: "it needs root")
    with pytest.raises(ConfigError, match="cannot be emulated here, it needs root"):
        resolve_network(["cluster=emulated_2x1gbit"])


@pytest.mark.parametrize(("word", "text"), [("ranks=0", "whole number"), ("ranks=1", "ranks=2"), ("rank=2", "ranks")])
def test_ranks_that_cannot_compress(word, text):
    with pytest.raises(ConfigError, match=text):
        resolve_compressors([word])
