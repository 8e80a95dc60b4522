"""The files of components in conf/ say what the declarations say; files of the user's own are found before them."""

import os
import subprocess
import sys

import pytest
import yaml
from refusals import output, refusal

from ssfx.cli import main
from ssfx.config.groups import COMPONENT_GROUPS, check_choice, choices
from ssfx.config.write_conf import conf_files
from ssfx.core.component_file import component_file
from ssfx.core.errors import ConfigError
from ssfx.core.paths import conf_dir
from ssfx.lab.config.cases import resolve_job

PLUGIN = '''
"""A compressor of the user's own."""
from dataclasses import dataclass
from ssfx.compressors.base import Compressor, Layout, compressors

@dataclass(frozen=True)
class HalfOptions:
    """`keep` is how many."""
    keep: int = 2

@compressors.register(HalfOptions())
class Half(Compressor):
    name = "{name}"
    summary = "an example"
    source = "a test"
    def __init__(self, options):
        self.options = options
    def layout(self, numel, density):
        return Layout(scales=1, code_bytes=numel)
    def compress(self, a, payload, ctx):
        pass
    def decompress_add(self, payload, out):
        pass
'''


@pytest.fixture(autouse=True)
def here(monkeypatch, two_cores):
    monkeypatch.setenv("SSFX_CONF", "")
    monkeypatch.setenv("SSFX_PLUGINS", "")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder of configuration of the user's own: write(name, text) adds a file."""
    monkeypatch.setenv("SSFX_CONF", str(tmp_path))

    def write(name, text):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    return write


def test_the_files_are_what_the_registries_give():
    written = {name: (conf_dir() / name).read_text() for name in conf_files()}
    assert written == conf_files(), "run `make conf` and commit"
    found = {path.relative_to(conf_dir()) for group in COMPONENT_GROUPS for path in (conf_dir() / group).iterdir()}
    assert found == set(conf_files())


def test_a_file_of_ones_own_is_a_choice(own):
    own("compressor/dgc_fp16.yaml", "name: dgc\nvalue_dtype: float16\n")
    own("compressor/tight.yaml", "defaults: [dgc_fp16, _self_]\nmode: faithful\n")
    own("scheme/pairs.yaml", "name: spardl\nteams: 2\n")
    assert {"dgc_fp16", "tight", "dgc"} <= set(choices("compressor"))
    words = ["scheme=per_tensor", "compressor=dgc_fp16,dgc,tight,dgc_fp16(value_dtype=bfloat16)"]
    assert [case.compressor for case in resolve_job(words).cases] == [
        "dgc(value_dtype=float16)",
        "dgc",
        "dgc(mode=faithful,value_dtype=float16)",
        "dgc(value_dtype=bfloat16)",
    ]
    changed = resolve_job(["scheme=per_tensor", "compressor=dgc_fp16", "compressor.value_dtype=bfloat16"]).cases[0]
    assert changed.compressor == "dgc(value_dtype=bfloat16)"
    (case,) = resolve_job(["scheme=pairs", "world_size=4"]).cases
    assert (case.scheme, case.scheme_options) == ("spardl", {"teams": 2})


def test_an_experiment_and_a_cluster_of_ones_own(own, tmp_path, monkeypatch, capsys):
    own("cluster/box.yaml", "defaults: [16gpu, _self_]\nsummary: mine\nnodes: 2\ninter: {gbps: 25.0}\n")
    own("compressor/half.yaml", "name: dgc\nvalue_dtype: float16\n")
    own(
        "experiment/mine.yaml",
        "# @package _global_\ndefaults:\n  - override /cluster: box\n  - override /compressor: half\n"
        "experiment: {name: mine, summary: mine, sweep: {scheme: [per_tensor]}, simulated: {}, also: []}\n",
    )
    (case,) = resolve_job(["experiment=mine"]).cases
    assert (case.cluster.name, case.cluster.options, case.world_size) == ("box", {}, 8)
    found = component_file("cluster", "box")
    assert (found["nodes"], found["inter"]["gbps"], found["inter"]["latency_s"]) == (2, 25.0, 1e-5)
    monkeypatch.setenv("SSFX_CONF", "")
    assert "per_tensor/" in output(capsys, "run", "--dry-run", "--config-dir", str(tmp_path), "experiment=mine")


def test_a_further_point_of_an_experiment_may_have_several_values_and_continue_another(own):
    own(
        "experiment/mine.yaml",
        "# @package _global_\ndefaults:\n  - override /cluster: 16gpu\n"
        "experiment:\n  name: mine\n  summary: mine\n  sweep: {scheme: [ddp]}\n  simulated: {}\n"
        "  also:\n    - &two {scheme: [ssgd, wfbp], cluster.nodes: [2, 4]}\n    - {<<: *two, scheme: ddp_fp16}\n",
    )
    found = [(one.scheme, one.world_size) for one in resolve_job(["experiment=mine"]).cases]
    assert found == [
        ("ddp", 16),
        *(("ssgd", n) for n in (8, 16)),
        *(("wfbp", n) for n in (8, 16)),
        *(("ddp_fp16", n) for n in (8, 16)),
    ]


def test_an_experiment_that_names_its_cluster_as_a_value_is_told_how_to(own, capsys):
    own(
        "experiment/mine.yaml",
        "# @package _global_\ncluster: 16gpu\n"
        "experiment: {name: mine, summary: mine, sweep: {scheme: [ddp]}, simulated: {}, also: []}\n",
    )
    assert main(["run", "--dry-run", "experiment=mine"]) == 2
    assert "write '- override /cluster: 16gpu' in its defaults" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: dgcc\n", "unknown compressor 'dgcc'; did you mean 'dgc'?"),
        ("name: dgc\nvalue_dtyp: float16\n", "unknown option of compressor dgc 'value_dtyp'"),
        ("name: [\n", "mine.yaml cannot be read"),
        ("dgc\n", "mine.yaml must hold key: value lines"),
        ("defaults: [mine]\n", "continues itself"),
        ("defaults: [/cluster/64gpu]\n", "name files of its own group"),
    ],
)
def test_a_wrong_file_is_one_line(own, text, expected, capsys):
    own("compressor/mine.yaml", text)
    assert expected in refusal(capsys, "run", "--dry-run", "scheme=per_tensor", "compressor=mine")


def test_a_folder_that_is_not_there_is_one_line(capsys, tmp_path):
    assert "is no folder" in refusal(capsys, "run", "--dry-run", "--config-dir", str(tmp_path / "none"))


def ssfx(*words, folder, **variables):
    return subprocess.run(
        [sys.executable, "-c", "import sys; from ssfx.cli import main; sys.exit(main(sys.argv[1:]))", *words],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )


def test_a_component_of_ones_own_is_found_by_option_by_variable_and_by_entry_point(tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN.replace("{name}", "half"))
    package = tmp_path / "packages"
    (package / "theirs-1.dist-info").mkdir(parents=True)
    (package / "theirs-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (package / "theirs-1.dist-info" / "entry_points.txt").write_text("[ssfx.plugins]\ntheirs = theirs\n")
    (package / "theirs.py").write_text(PLUGIN.replace("{name}", "third"))
    words = ["run", "--dry-run", "scheme=per_tensor"]
    for option in (["--plugin", "mine"], ["--plugin", "mine.py"]):
        found = ssfx(*words, *option, "compressor=half(keep=3)", folder=tmp_path)
        assert "per_tensor/half(keep=3) x2" in found.stdout, found.stderr
    found = ssfx(*words, "compressor=half", folder=tmp_path, SSFX_PLUGINS="mine")
    assert "per_tensor/half x2" in found.stdout, found.stderr
    path = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    found = ssfx("list", "compressors", folder=tmp_path, PYTHONPATH=path)
    assert "\nthird" in found.stdout, found.stderr
    wrong = ssfx(*words, "--plugin", "not_there", "compressor=half", folder=tmp_path)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "plugin not_there cannot be imported" in wrong.stderr


def test_the_configuration_of_the_first_case_and_of_all_is_printed(capsys):
    assert main(["run", "--cfg", "job", "scheme=spardl", "world_size=2", "compressor=topk(value_dtype=float16)"]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert (found["compressor"]["value_dtype"], found["scheme"]["teams"], found["world_size"]) == ("float16", 1, 2)
    assert found["steps"] == found["preset"]["steps"]
    assert main(["run", "--cfg", "all", "-m", "seed=range(0,3)", "scheme=ddp"]) == 0
    assert [one["seed"] for one in yaml.safe_load_all(capsys.readouterr().out)] == [0, 1, 2]


def test_a_name_is_checked_without_importing_components():
    probe = (
        "import sys; from ssfx.config.groups import check_choice; check_choice('scheme', 'ddp');"
        "print([m for m in sys.modules if m.startswith(('ssfx.schemes', 'hydra', 'torch'))])"
    )
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert out == "[]\n"
    with pytest.raises(ConfigError, match="did you mean 'ddp'"):
        check_choice("scheme", "dpp")
