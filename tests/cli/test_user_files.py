"""Whatever stands in a file that a user made, a command gives a result or one line."""

import copy
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from ssfx.cli import main
from ssfx.config.compose import joined
from ssfx.config.groups import _choices, _node
from ssfx.perf_model.recorded_times import recorded_profile, recorded_system
from ssfx.perf_model.shipped_profiles import load_shipped
from ssfx.perf_model.target import _on, _target_at

SEED = 20261125
MUTATIONS = 20
"""Of every kind of file."""
SLOW = " ..."
"""How lines end that come with a result: what a slow machine is doing."""
NESTED: list[Any] = []
for _ in range(120):
    NESTED = [NESTED]
OTHERS = (
    None,
    True,
    -1,
    0,
    3,
    0.5,
    -0.5,
    10**40,
    1e308,
    1e-300,
    "text",
    "1e-5",
    "../../x",
    "",
    [],
    {},
    [1],
    [[]],
    {"a": 1},
    ["a", 2],
    float("nan"),
    float("inf"),
    NESTED,
)
GLOBAL = "# @package _global_\n"
WORKLOAD, EXPERIMENT, PRESET, CLUSTER = yaml.safe_load_all("""
defaults: [{override /model: resnet_tiny}, {override /dataset: digits}, {override /preset: smoke}]
workload: {name: mine, summary: mine, epochs: 3, trained_on: digits, train_samples: 1000}
batch_size: 9
optimizer: sgd
lr: 0.1
momentum: 0.9
weight_decay: 0.0
schedule: step
milestones: [0.5, 0.75]
---
defaults: [{override /cluster: 16gpu}]
experiment:
  {name: mine, summary: mine, sweep: {scheme: [ddp, wfbp], cluster.inter.gbps: [1, 10]},
   simulated: {workload: [digits_resnet]}, also: [{scheme: ssgd, world_size: 1}]}
density: null
world_size: 16
---
{name: mine, summary: mine, steps: 9, warmup_steps: 2, repeats: 2, evaluate: false}
---
{defaults: [16gpu, _self_], summary: mine, nodes: 3, devices_per_node: 2, nics_per_node: 1, device: h100,
 intra: {link: nvlink, gbps: 3000.0}, inter: {gbps: 100.0, efficiency: 0.9}, source: mine, calibration: published,
 factors: {all_gather: 1.5}, busbw_gbps: 50.0,
 published: {codec_times: ssfusion, source: theirs, inter: {latency_s: 1.0e-5}},
 slurm: {partition: a, throttle: 3, modules: [a], environment: {A: b}, time_limit: 30}}
""")


@dataclass
class Kind:
    """A file of a user's, how it is written, and the commands that read it."""

    path: Path
    content: Any
    text: Callable[[Any], str]
    commands: tuple[str, ...]


def spelled(content: Any) -> str:
    return str(yaml.safe_dump(content, sort_keys=False))


def spelled_global(content: Any) -> str:
    return GLOBAL + spelled(content)


def kinds(root: Path) -> dict[str, Kind]:
    conf, results = root / "conf", root / "results"
    for group in ("workload", "experiment", "preset", "cluster", "scheme"):
        (conf / group).mkdir()
    (results / "profiles").mkdir(parents=True)
    profile = json.loads(load_shipped("lstm_tiny").to_json())
    system = recorded_system("local", 2, shipped=True)
    assert system is not None
    network = json.loads(system.to_json())
    compressors = {**network, "codecs": {name: network["codecs"][name] for name in ("dgc", "fp16", "topk")}}
    (results / "profiles" / "local-x2.json").write_text(json.dumps(network))  # is read before that of compressors
    words = "run model=lstm_tiny dataset=synthetic cluster=16gpu scheme=ssfusion_oi trace=true"
    assert main(words.split()) == 0
    (plan,) = results.glob("runs/*/attempt-1/plan.json")
    simulated = "simulate model=lstm_tiny cluster=local world_size=2 scheme=ddp,fused_all"
    dry = "run --dry-run"
    return {
        "profile": Kind(
            root / "own.json",
            profile,
            json.dumps,
            (
                f"simulate profile={root}/own.json cluster=local world_size=2 scheme=ddp,fused_all",
                f"plan profile={root}/own.json cluster=local world_size=2 scheme=per_tensor",
            ),
        ),
        "network": Kind(results / "profiles" / "local-x2.json", network, json.dumps, (simulated,)),
        "compressors": Kind(results / "profiles" / "compressors-x2.json", compressors, json.dumps, (simulated,)),
        "plan": Kind(plan, json.loads(plan.read_text()), json.dumps, (f"show {plan.parents[1].name}",)),
        "workload": Kind(
            conf / "workload" / "mine.yaml",
            WORKLOAD,
            spelled_global,
            (
                f"{dry} workload=mine scheme=ddp",
                f"{dry} workload=mine preset=paper scheme=ddp",
            ),
        ),
        "experiment": Kind(conf / "experiment" / "mine.yaml", EXPERIMENT, spelled_global, (f"{dry} experiment=mine",)),
        "preset": Kind(conf / "preset" / "mine.yaml", PRESET, spelled, (f"{dry} preset=mine scheme=ddp",)),
        "cluster": Kind(
            conf / "cluster" / "mine.yaml",
            CLUSTER,
            spelled,
            (
                "simulate model=lstm_tiny cluster=mine scheme=ddp,fused_all",
                f"{dry} model=lstm_tiny dataset=synthetic cluster=mine scheme=ddp engine=slurm",
            ),
        ),
        "scheme": Kind(
            conf / "scheme" / "mine.yaml",
            {"name": "ddp", "bucket_cap_bytes": 5000},
            spelled,
            (
                "simulate model=lstm_tiny cluster=16gpu scheme=mine",
                f"{dry} scheme=mine",
            ),
        ),
    }


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Yield holder and key of everything below `content`; of long lists the ends."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    listed = list(items)
    for key, value in listed if len(listed) < 20 else [*listed[:3], *listed[-3:]]:
        yield content, key
        yield from places(value)


def mutated(kind: Kind, random_: random.Random) -> bytes:
    """Return the file with something else in it: another value, a key less or more, or bytes that are no text of it."""
    content = copy.deepcopy(kind.content)
    holder, key = random_.choice(list(places(content)))
    match random_.choices(range(5), (8, 2, 2, 1, 1))[0]:
        case 0:
            holder[key] = random_.choice(OTHERS)
        case 1:
            del holder[key]
        case 2 if isinstance(holder, dict):
            holder[random_.choice(("zzz", f"{key}s", 3, "name", "defaults"))] = holder.pop(key)
        case 3:
            return json.dumps(random_.choice(OTHERS)).encode()
        case _:
            text = kind.text(content).encode()
            at = random_.randrange(len(text))
            return random_.choice((text[:at], text[:at] + b"\xff\xfe[" + text[at:], text[:at] + text[at + 3 :]))
    return kind.text(content).encode()


def forgotten() -> None:
    for cached in (_target_at, _on, joined, _choices, _node):
        cached.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SSFX_CONF", str(tmp_path / "conf"))
    (tmp_path / "conf").mkdir()
    forgotten()
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["profile", "network", "compressors", "plan", "workload", "experiment", "preset", "cluster", "scheme"]
)
def test_a_file_of_a_user_gives_a_result_or_one_line(name, folder, capsys):
    random_, kind, counted = random.Random(f"{SEED}{name}"), kinds(folder)[name], Counter[int]()
    kind.path.write_text(kind.text(kind.content))
    for command in kind.commands:
        forgotten()
        assert main(command.split()) == 0, capsys.readouterr().err
    for _ in range(MUTATIONS):
        content = mutated(kind, random_)
        kind.path.write_bytes(content)
        for command in kind.commands:
            forgotten()
            capsys.readouterr()
            try:
                code = main(command.split())
            except BaseException as error:
                error.add_note(f"{command}: {content!r:.1500}")
                raise
            err = [line for line in capsys.readouterr().err.splitlines() if not line.endswith(SLOW)]
            assert code in (0, 1, 2)
            assert len(err) == bool(code), (command, err, content)
            assert not code or (err[0].startswith("ssfx: ") and len(err[0]) < 3000), err
            counted[code] += 1
    assert counted[0] + counted[1] + counted[2] == MUTATIONS * len(kind.commands)
    assert counted[1] + counted[2] > 0.2 * counted.total()


def test_recorded_times_of_a_wrong_type_are_refused(folder, capsys):
    kind = kinds(folder)["network"]
    kind.content["exchange"]["all_reduce"]["seconds"][0] = "1e-5"
    kind.path.write_text(json.dumps(kind.content))
    assert main(kind.commands[0].split()) == 1
    assert "exchange.all_reduce.seconds[0] must be of type float, got '1e-5'" in capsys.readouterr().err
    assert recorded_profile("lstm_tiny", "cpu", 2, shipped=True) is not None
