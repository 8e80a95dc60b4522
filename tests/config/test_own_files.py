"""What nothing reads in a file of the user's own is refused with the nearest key, and no name leaves its folder."""

import pytest
from refusals import refusal

from ssfx.config.groups import GROUPS
from ssfx.core.yaml_file import read_yaml
from ssfx.lab.config.cases import resolve_job

WORKLOAD = """# @package _global_
defaults: [override /model: resnet_tiny, override /dataset: digits]
workload: {name: mine, summary: mine}
batch_size: 9
optimizer: sgd
lr: 1e-2
momentum: 0.9
weight_decay: 0.0
"""
EXPERIMENT = "# @package _global_\nexperiment: {name: mine, summary: mine, sweep: {scheme: [ddp]}, simulated: {}}\n"
PRESET = "name: mine\nsummary: mine\nsteps: 9\nwarmup_steps: 2\nrepeats: 1\n"
CLUSTER = "defaults: [64gpu, _self_]\nsummary: mine\n"


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path, two_cores):
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("SSFX_CONF", str(tmp_path / "conf"))
    (tmp_path / "conf").mkdir()


@pytest.fixture
def own(tmp_path):
    def write(group, text, name="mine"):
        path = tmp_path / "conf" / group / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


SLIPS = [
    ("cluster", CLUSTER + "inter: &a {x: *a}\n", "has an alias inside of what it stands for"),
    ("cluster", CLUSTER.replace("summary: mine", "summary: {a: b}"), "summary must be one line of text"),
    ("cluster", CLUSTER + 'name: "my\\ncluster"\n', "name must be one line of text"),
    ("workload", WORKLOAD.replace("summary: mine", "summary: [a, b]"), "workload.summary must be one line of text"),
    ("workload", WORKLOAD + "model: &a {name: [*a]}\n", "has an alias inside of what it stands for"),
    ("workload", WORKLOAD + "clip_norrm: 0.5\n", "'clip_norrm'; did you mean 'clip_norm'"),
    ("workload", WORKLOAD + "_target_: os.system\n", "unknown key '_target_'"),
    ("workload", WORKLOAD.replace("batch_size", "batch_sizze"), "'batch_sizze'; did you mean 'batch_size'"),
    ("workload", WORKLOAD.replace("batch_size: 9\n", ""), "lacks batch_size"),
    ("workload", WORKLOAD.replace("workload:", "workloads:"), "did you mean 'workload'"),
    ("workload", WORKLOAD.replace("{name: mine,", "{name: mine, epoch: 3,"), "under workload: unknown key 'epoch'"),
    ("workload", WORKLOAD.replace("{name: mine,", "{name: mine, epochs: 3,"), "goes with train_samples"),
    ("workload", WORKLOAD.partition("\n")[2], "first line must be '# @package _global_'"),
    ("workload", WORKLOAD + "lr: 0.1\n", "the key 'lr' is given twice"),
    ("workload", WORKLOAD + "cluster: {intra: {gbp: 5}}\n", "under cluster.intra: unknown key 'gbp'; did you"),
    ("workload", WORKLOAD + "dataset: {seq_length: 5}\n", "unknown option of dataset digits"),
    ("preset", PRESET.replace("repeats", "repeat"), "'repeat'; did you mean 'repeats'"),
    ("preset", PRESET + "lr: 0.1\n", "lr is a key of a run"),
    ("experiment", EXPERIMENT.replace("sweep", "swep"), "'swep'; did you mean 'sweep'"),
    ("experiment", EXPERIMENT.replace("simulated: {}", "simulated: {schem: [ddp]}"), "simulated: unknown key 'schem'"),
    ("experiment", EXPERIMENT.replace("simulated: {}", "real: {schem: [ddp]}"), "real: unknown key 'schem'"),
    ("experiment", EXPERIMENT.replace("simulated: {}", "also: [{schem: ddp}]"), "also[0]: unknown key 'schem'"),
    ("experiment", EXPERIMENT.replace("[ddp]", "[]"), "sweep.scheme has no values"),
    ("experiment", EXPERIMENT + "defaults: [override /cluster: null]\n", "choose no cluster; add one"),
    ("experiment", EXPERIMENT.replace("simulated: {}", "also: {scheme: ddp}"), "also must be a list of points"),
    ("experiment", "# @package _global_\nexperiment: .nan\n", "experiment must hold key: value lines"),
    ("experiment", EXPERIMENT + "defaults: [[a, b]]\n", "defaults has ['a', 'b']"),
    ("experiment", EXPERIMENT + "defaults: 3\n", "defaults has 3"),
    ("experiment", EXPERIMENT + "defaults: [override /preset: ../../x]\n", "leaves its folder"),
    ("experiment", EXPERIMENT + "defaults: [../model/gpt2]\n", "leaves its folder"),
    ("experiment", EXPERIMENT + "scheme: {bucket: 5}\n", "unknown option of scheme ssfusion_oi"),
    ("cluster", CLUSTER + "gpus_per_node: 8\n", "unknown key 'gpus_per_node'; did you mean 'devices_per_node'"),
    ("cluster", CLUSTER + "nics: 8\n", "did you mean 'nics_per_node'"),
    ("cluster", CLUSTER + "inter: {latency: 8}\n", "under inter: unknown key 'latency'; did you mean 'latency_s'"),
    ("cluster", CLUSTER + "gpu_per_nodes: 8\n", "did you mean 'devices_per_node'"),
    ("cluster", CLUSTER + "inter: {bandwith: 8}\n", "under inter: unknown key 'bandwith'; did you mean 'gbps'"),
    ("cluster", CLUSTER + "inter: {GBPS: 8}\n", "did you mean 'gbps'"),
    ("cluster", CLUSTER + "interconnect: {gbps: 8}\n", "did you mean 'inter'"),
    ("cluster", CLUSTER + "published: {facters: {}}\n", "unknown key 'facters'; did you mean 'factors'"),
    ("cluster", CLUSTER + "slurm: {partion: a}\n", "under slurm: unknown key 'partion'; did you mean 'partition'"),
    ("cluster", CLUSTER + "intra:\n", "intra must hold key: value lines; drop it"),
    ("cluster", CLUSTER + "published: {inter: null}\n", "inter must hold key: value lines; drop it"),
    ("cluster", CLUSTER + "inter: 3\n", "inter must hold key: value lines"),
    ("cluster", CLUSTER + "inter: {gbps: fast}\n", "cluster.inter.gbps must be a number, got 'fast'"),
    ("cluster", CLUSTER + "inter: {latency_s: [1]}\n", "cluster.inter.latency_s must be a number"),
    ("cluster", CLUSTER + "factors: {all_reduce: much}\n", "cluster.factors.all_reduce must be a number"),
    ("cluster", CLUSTER + "factors: 3\n", "cluster.factors must hold primitive: number lines"),
    ("cluster", CLUSTER + "defaults: 16gpu\n", "the key 'defaults' is given twice"),
    ("cluster", CLUSTER.replace("64gpu", "../cluster/64gpu"), "not '../cluster/64gpu'"),
    ("scheme", "nmae: ddp\n", "unknown key 'nmae'; did you mean 'name'"),
    ("scheme", "name: dpd\n", "name: unknown scheme 'dpd'; did you mean 'ddp'"),
    ("scheme", "name: ddp\nbucket_cap_byte: 5\n", "did you mean 'bucket_cap_bytes'"),
    ("scheme", "name: per_tensor\ndensity: 0.1\n", "density is a key of its own"),
    ("model", "name: gpt2\nlayers: 5\n", "model gpt2 has no options, so layers means nothing"),
    ("model", "nmae: gpt2\n", "unknown key 'nmae'; did you mean 'name'"),
    ("model", "name: [gpt2]\n", "name must be that of a model"),
]


@pytest.mark.parametrize(("group", "text", "said"), SLIPS, ids=[said for _, _, said in SLIPS])
def test_a_slip_in_a_file_is_one_line_with_the_file_and_the_nearest_key(own, capsys, group, text, said):
    path = own(group, text)
    words = [f"{group}=mine", *(["cluster=64gpu"] if group in ("scheme", "model") else [])]
    line = refusal(capsys, "run", "--dry-run", *words)
    assert said in line
    assert str(path) in line or "in a configuration file" in line or "cluster." in line or "choose no" in line


def test_a_slip_in_a_file_that_another_one_continues_is_refused(own, capsys):
    base = own("workload", WORKLOAD + "clip_norrm: 1\n", "base")
    own("workload", WORKLOAD.replace("defaults: [", "defaults: [base, "))
    assert f"{base}: unknown key 'clip_norrm'" in refusal(capsys, "run", "--dry-run", "workload=mine")
    own("experiment", EXPERIMENT + "defaults: [override /workload: base]\n")
    assert f"{base}: unknown key 'clip_norrm'" in refusal(capsys, "run", "--dry-run", "experiment=mine")


def test_what_may_be_left_out_is_left_out(own):
    own("workload", WORKLOAD)
    own("experiment", EXPERIMENT.replace("sweep: {scheme: [ddp]}", "sweep: {scheme: wfbp}"))
    (case,) = resolve_job(["experiment=mine", "workload=mine"]).cases
    assert (case.scheme, case.batch_size, case.lr, case.experiment) == ("wfbp", 9, 0.01, "mine")
    own("experiment", "# @package _global_\nexperiment: {summary: mine}\n")
    assert [case.experiment for case in resolve_job(["experiment=mine"]).cases] == ["mine"]


@pytest.mark.parametrize("group", sorted(GROUPS))
@pytest.mark.parametrize("name", ["../model/resnet_tiny", "../../elsewhere/evil", "/etc/passwd", "sub/../../x"])
def test_no_name_leaves_the_folder_of_its_group(tmp_path, capsys, group, name):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "evil.yaml").write_text(EXPERIMENT)
    line = refusal(capsys, "run", "--dry-run", f"{group}={name}")
    assert f"{group}={name} leaves the folder {group}/" in line


def test_numbers_are_numbers_and_times_and_leading_zeros_are_not(own):
    path = own(
        "cluster",
        CLUSTER + "inter: {gbps: 1e2, latency_s: 1e-5}\nslurm: {time_limit: 1:30:00, account: 0123, throttle: 4}\n",
    )
    said = read_yaml(path)
    assert said["inter"] == {"gbps": 100.0, "latency_s": 1e-5}
    assert said["slurm"] == {"time_limit": "1:30:00", "account": "0123", "throttle": 4}
    job = resolve_job(["model=resnet50", "dataset=synthetic", "cluster=mine", "scheme=ddp", "engine=slurm"])
    assert (job.cluster.inter.gbps, job.cluster.inter.latency_s) == (100.0, 1e-5)
    assert (job.site.time_limit, job.site.account, job.site.limit_s()) == ("1:30:00", "0123", 5400)


def test_numbers_in_quotes_and_whole_numbers_with_an_exponent_are_numbers_in_every_file(own):
    sizes = "bytes: ['1e4', 1e6], us: ['1e2', 4E2]"
    table = f"{{collective: all_reduce, ranks: 1.6e1, ranks_per_node: '2', {sizes}}}"
    own(
        "cluster",
        CLUSTER + "nodes: 8e0\ndevices_per_node: '2'\nnics_per_node: 2.0\nbusbw_gbps: '5e1'\n"
        f"inter: {{gbps: '1_00', latency_s: '1e-5'}}\nslurm: {{throttle: '4'}}\nexchanges: [{table}]\n",
    )
    own("scheme", "name: ddp\nbucket_cap_bytes: '1e6'\n")
    text = WORKLOAD.replace("size: 9", "size: '9'").replace("1e-2", "'1e-2'")
    own("workload", text + "schedule: step\nmilestones: ['5e-1', .75e0]\n")
    words = ["workload=mine", "cluster=mine", "scheme=mine", "engine=slurm"]
    job = resolve_job(words)
    cluster, (case,) = job.cluster, job.cases
    assert (cluster.nodes, cluster.devices_per_node, cluster.nics_per_node, cluster.busbw_gbps) == (8, 2, 2, 50.0)
    assert (cluster.inter.gbps, cluster.inter.latency_s, job.site.throttle) == (100.0, 1e-5, 4)
    assert (cluster.tables[0].ranks, cluster.tables[0].nbytes) == (16, (10**4, 10**6))
    assert cluster.tables[0].us == (100.0, 400.0)
    assert (case.batch_size, case.lr, case.milestones) == (9, 0.01, (0.5, 0.75))
    assert case.scheme_options == {"bucket_cap_bytes": 10**6}
    assert str(resolve_job([*words, "cluster.nodes=8"]).cases[0].cluster) == "mine"


def test_epochs_and_samples_of_a_workload_may_be_in_quotes(own):
    said = "{name: mine, summary: mine, epochs: '3', train_samples: 1e3, trained_on: digits}"
    own("workload", WORKLOAD.replace("{name: mine, summary: mine}", said))
    (case,) = resolve_job(["workload=mine", "preset=paper", "scheme=ddp"]).cases
    assert case.steps == 3 * (1000 // (9 * case.world_size))


@pytest.mark.parametrize("value", ["fast", "1e", "8 GB", "1,5", "nan", "0x", "--1", "1e5x", "true"])
def test_a_text_that_spells_no_number_is_refused(own, capsys, value):
    own("cluster", CLUSTER + f"inter: {{gbps: '{value}'}}\n")
    assert "cluster.inter.gbps must be a number" in refusal(
        capsys, "run", "--dry-run", "cluster=mine", "model=resnet50", "scheme=ddp"
    )
