"""target=quality: steps of recorded runs times simulated iterations, or one line that says where steps are known."""

import json
from dataclasses import replace

import pytest

from ssfx.advice.time_to_quality import quality_ranking
from ssfx.cli import main
from ssfx.config.advice_question import by_quality, resolve_setting
from ssfx.core.errors import ConfigError
from ssfx.core.paths import reference_dir
from ssfx.lab.results.store import Store

WORDS = ["model=resnet_mini", "cluster=acpsgd_10gbe", "cluster.nodes=4", "cluster.devices_per_node=1", "batch_size=16"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    found = Store(tmp_path_factory.mktemp("results"), reference_dir()).reference_rows()
    return [row for row in found if row.case.experiment == "time_to_quality" and row.case.scheme in ("ddp", "omgs")]


def test_schemes_are_ranked_by_recorded_steps_times_simulated_iterations(rows):
    setting = resolve_setting(WORDS)
    found = quality_ranking(setting, rows)
    assert {one.scheme for one in found} == {"ddp", "omgs/dgc@0.05"}
    assert {one.kind for one in found} == {"simulated"}
    assert found[0].time_s.value <= found[1].time_s.value
    slower = quality_ranking(resolve_setting([*WORDS, "cluster.inter.gbps=0.1"]), rows)
    dense = {name: next(one for one in each if one.scheme == "ddp") for name, each in (("10", found), (".1", slower))}
    assert dense[".1"].steps == dense["10"].steps
    assert dense[".1"].time_s.value > dense["10"].time_s.value


def test_what_is_not_recorded_is_one_line(rows):
    with pytest.raises(ConfigError, match=r"recorded of .*resnet_mini.*, not of resnet50; ssfx run experiment="):
        quality_ranking(resolve_setting(["model=resnet50", "cluster=acpsgd_10gbe"]), rows)
    with pytest.raises(ConfigError, match="write batch_size=16"):
        quality_ranking(resolve_setting([*WORDS[:-1], "batch_size=32"]), rows)
    with pytest.raises(ConfigError, match="it is time, that of a step, or quality"):
        by_quality(["target=speed"])


def test_the_command_prints_the_ranking(rows, monkeypatch, capsys):
    never = [replace(row, metrics={**row.metrics, "steps_to_target": None}) for row in rows if row.case.scheme == "ddp"]
    shown = [row for row in rows if row.case.scheme != "ddp"] + never
    monkeypatch.setattr("ssfx.lab.results.store.Store.readable", lambda self: (shown, []))
    assert main(["advise", *WORDS, "target=quality"]) == 0
    out = capsys.readouterr().out
    assert ": 4 ranks, time to top1 0.95: steps of recorded runs" in out.splitlines()[0]
    assert out.splitlines()[3].split()[:4] == ["ddp", "0", "of", "5"]
    assert out.splitlines()[3].split()[4:] == ["never", "never"]
    assert main(["advise", *WORDS, "target=quality", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["scheme"] for one in found] == ["omgs/dgc@0.05", "ddp"]
    assert found[1]["time_s"]["value"] is None
    assert main(["advise", *WORDS, "target=quality", "--all"]) == 2
