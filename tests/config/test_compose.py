"""A grid is joined from files once per choice of files, and means what Hydra alone says of each of its points."""

import json
import re
import shutil

import hydra
import pytest
from hydra.errors import ConfigCompositionException
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from ssfx.config.compose import JOINED_GROUPS, _with_references, compose, joined
from ssfx.config.groups import COMPONENT_GROUPS, GROUPS, choices, node
from ssfx.config.plans import resolve_plan
from ssfx.core.errors import ConfigError
from ssfx.core.paths import conf_dir, conf_dirs
from ssfx.lab.config import cases
from ssfx.lab.config.cases import resolve_job

WIDE = "scheme=ddp,per_tensor,fused_all,ssfusion_oi workload=digits_resnet,text_gpt2 density=0.1,0.01,0.001 seed="


pytestmark = pytest.mark.usefixtures("two_cores")


@pytest.fixture
def compositions(monkeypatch):
    """Forget earlier joins and record the words of every composition by Hydra."""
    joined.cache_clear()
    seen = []

    def recorded(name, words):
        seen.append(words)
        return hydra_compose(name, words)

    hydra_compose = hydra.compose
    monkeypatch.setattr(hydra, "compose", recorded)
    return seen


@pytest.fixture(scope="module", autouse=True)
def whole(tmp_path_factory):
    """A copy of conf/ for Hydra alone, in which the files of components hold the options of the declarations."""
    folder = tmp_path_factory.mktemp("whole") / "conf"
    shutil.copytree(conf_dir(), folder)
    for group in COMPONENT_GROUPS:
        for path in (folder / group).glob("*.yaml"):
            path.write_text(json.dumps(node(group, path.stem)))
    WHOLE.append(folder)


WHOLE = []


def hydra_alone(point, folder=None):
    """Return what Hydra makes of a point when every key is an override of the files in conf/."""
    # A link that the file names by its kind has no rate there, and may be given one.
    named = "cluster.inter.gbps" not in point or "gbps" in node("cluster", point.get("cluster", "local"))["inter"]
    words = [
        f"{'' if named or key != 'cluster.inter.gbps' else '+'}{key}={spelled(value)}"
        for key, value in point.items()
        if key not in GROUPS or value is not None
    ]
    with hydra.initialize_config_dir(config_dir=str(folder or WHOLE[-1]), version_base="1.3"):
        return OmegaConf.to_container(hydra.compose("config", words), resolve=True)


def spelled(value):
    return f"'{value}'" if isinstance(value, str) else json.dumps(value)


VALUES = {
    "density": st.sampled_from([None, 0.1, 1.0]),
    "steps": st.integers(1, 10**6),
    "repeats": st.integers(1, 5),
    "lr": st.floats(1e-6, 10),
    "clip_norm": st.sampled_from([None, 0.5]),
    "evaluate": st.booleans(),
    "wandb": st.sampled_from(["off", "online"]),
    "scheme.groups": st.sampled_from([None, 3]),
    "compressor.value_dtype": st.sampled_from(["float16", "float32"]),
    "memory.decay": st.sampled_from([0.5, "${lr}", "${preset.steps}", [1, 2]]),
    "dataset.seq_len": st.integers(1, 512),
    "cluster.nodes": st.integers(1, 64),
    "cluster.inter.gbps": st.floats(0.1, 800),
}


@st.composite
def points(draw):
    groups = draw(st.lists(st.sampled_from(GROUPS), unique=True))
    point = {group: draw(st.sampled_from(choices(group))) for group in groups}
    unset = {"compressor", "memory"} - set(point)
    for key in draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True)):
        if key.partition(".")[0] not in unset:
            point[key] = draw(VALUES[key])
    return point | dict.fromkeys(unset if draw(st.booleans()) else ())


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(points())
@example({"cluster.nodes": 2})
@example({"cluster.nodes": 1})
@example({"experiment": "auto_to_target"})
@example({"workload": "mini_lstm", "dataset": "cifar10"})
@example({"workload": "text_bert", "dataset": "cifar10", "dataset.seq_len": 1})
@example({"cluster": "abci_a100", "cluster.inter.gbps": 1.0})
@example({"cluster": "azure_ndv4_tcp", "cluster.inter.gbps": 1.0})
def test_a_point_is_what_hydra_alone_makes_of_it(point):
    options = {key.partition(".")[2] for key in point}
    try:
        expected = hydra_alone(point)
    except ConfigCompositionException:
        expected = None
    own = node("dataset", point["dataset"]) if "dataset" in point else None
    of_another = own is not None and "dataset.seq_len" in point and "seq_len" not in own  # the workload's has it
    if expected is None or of_another:
        with pytest.raises(ConfigError, match=r"no option \w+;") as caught:
            compose(point)
        assert re.findall(r"no option (\w+);", str(caught.value))[0] in options
    else:
        file = hydra_alone({"cluster": expected["cluster"]["name"]})["cluster"]
        other = "cluster.inter.gbps" in point or expected["cluster"]["nodes"] != file["nodes"]
        if other and file["calibration"] == "recorded":
            expected["cluster"]["calibration"] = "nominal"  # nothing was recorded on such links, or so many machines
        if point.get("cluster.inter.gbps", file["inter"].get("gbps")) != file["inter"].get("gbps"):
            expected["cluster"].pop("exchanges", None)  # tables are of the network in the file
        if dataset := point.get("dataset"):  # what a workload says of its usual dataset is not said of another
            expected["dataset"] = {
                key: value for key, value in expected["dataset"].items() if key in node("dataset", dataset)
            }
        assert compose(point) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "preset=full scheme=ddp,ssfusion_oi steps=30,50 evaluate=true",
        "experiment=throughput scheme=per_tensor,wfbp density=0.5",
        "experiment=time_to_quality workload=mini_resnet,mini_lstm compressor=topk,randomk",
        "scheme=per_tensor,fused_all compressor=dgc,topk,fp16 compressor.value_dtype=float16 density=0.1",
        "scheme=per_tensor memory=momentum memory.decay=0.5,0.9",
        "scheme=ssfusion_oi,ddp workload=text_gpt2 dataset.seq_len=32,64 seed=0,1",
    ],
)
def test_a_grid_is_the_cases_of_its_points_composed_one_by_one(words, monkeypatch):
    def outcome():
        try:
            return resolve_job(words.split())
        except ConfigError as error:
            return str(error)

    together = outcome()
    monkeypatch.setattr(cases, "compose", hydra_alone)
    assert together == outcome()


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("", 1),
        ("scheme=ddp,per_tensor,fused_all density=0.1,0.01,0.001 seed=0,1,2 compressor=topk,dgc", 1),
        ("experiment=throughput density=0.1,0.01", 1 + 3),  # the experiment, then its three workloads
        ("preset=short seed=0,1 world_size=1,2", 1 + 1),  # the default experiment, then the points with their preset
    ],
)
def test_files_are_joined_once_per_choice_of_files(words, count, compositions):
    resolve_job(words.split())
    assert len(compositions) == count
    assert all(word.partition("=")[0] in JOINED_GROUPS for words in compositions for word in words)


def test_a_thousand_cases_take_three_joins(compositions):
    before = _with_references.cache_info().misses
    made = resolve_job((WIDE + ",".join(map(str, range(50)))).split())
    assert len(made.cases) == 1000
    assert len(compositions) == 3
    assert _with_references.cache_info().misses - before <= 20


def test_plan_joins_once(compositions):
    resolve_plan(["model=bert_large", "cluster=64gpu"])
    assert compositions == [[]]


def test_what_is_returned_may_be_changed():
    compose({})["experiment"]["sweep"]["scheme"].append("x")
    compose({})["cluster"]["inter"]["gbps"] = 0
    assert compose({}) == hydra_alone({})


PROBE = """# @package _global_
defaults:
  - override /compressor: topk
  - override /dataset: stdlib_text
experiment: {name: probe, summary: refers and patches, sweep: {scheme: [ddp]}, also: []}
compressor: {value_dtype: float16}
dataset: {seq_len: 99}
warmup_steps: ${steps}
seed: ${warmup_steps}
device: c${optimizer}
clip_norm: ${dataset.seq_len}
"""


@pytest.mark.parametrize(
    "point",
    [
        {},
        {"steps": 7},
        {"steps": 7, "optimizer": "pu", "dataset.seq_len": 5},
        {"compressor": "dgc", "warmup_steps": 1},
        {"compressor": "dgc", "compressor.value_dtype": "float32", "dataset": "stdlib_text"},
        {"device": "cpu", "seed": 3},
        {"scheme": "ddp", "memory": "momentum", "memory.decay": "${density}", "density": 0.5},
    ],
    ids=str,
)
def test_files_may_refer_to_values_and_patch_components(point, tmp_path, monkeypatch):
    folder = tmp_path / "conf"
    shutil.copytree(WHOLE[-1], folder)
    (folder / "experiment" / "probe.yaml").write_text(PROBE)
    monkeypatch.setattr("ssfx.config.compose.conf_dirs", lambda: (folder,))
    whole = {"experiment": "probe", **point}
    assert compose(whole) == hydra_alone(whole, folder)


def test_a_file_may_choose_an_engine_and_a_wrong_one_is_named(tmp_path, monkeypatch):
    (tmp_path / "experiment").mkdir()
    monkeypatch.setenv("SSFX_CONF", str(tmp_path))
    for engine in ("netns", "nets"):
        text = f"# @package _global_\ndefaults:\n  - override /engine: {engine}\nexperiment: {{name: {engine}}}\n"
        (tmp_path / "experiment" / f"{engine}.yaml").write_text(text)
    assert joined(conf_dirs(), (("experiment", "netns"),))["engine"] == {"name": "netns"}
    with pytest.raises(ConfigError, match=r"cannot join the files of experiment=nets: .*'engine/nets'"):
        joined(conf_dirs(), (("experiment", "nets"),))


def test_other_applications_of_hydra_in_the_process_are_left_alone(tmp_path):
    compose({})
    (tmp_path / "config.yaml").write_text("defaults: [_self_, {scheme: ddp}]\n")
    (tmp_path / "scheme").mkdir()
    (tmp_path / "scheme" / "ddp.yaml").write_text("theirs: true\n")
    with hydra.initialize_config_dir(config_dir=str(tmp_path), version_base="1.3"):
        assert OmegaConf.to_container(hydra.compose("config")) == {"scheme": {"theirs": True}}
