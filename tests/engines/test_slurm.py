"""The slurm engine on a Slurm of one machine: arrays, two nodes, failures, and commands that come back."""

import json
import os
import re
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from engines.helpers import HERE, make_case
from processes import wait_until
from refusals import output, refusal

from ssfx.cli import main
from ssfx.core.errors import REQUEUE_EXIT_CODE, ConfigError, RequeueError, RunError
from ssfx.core.slurm_site import Site
from ssfx.lab.cli.watch import snapshot
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.engines import allocation
from ssfx.lab.engines.failure import RunsFailed
from ssfx.lab.engines.slurm import Slurm
from ssfx.lab.engines.submission import Shape, later, queued, script

CLUSTER = "16gpu(device=cpu,devices_per_node=1,nodes=2)"


def two_nodes(**changes):
    return make_case(cluster=CLUSTER, **changes)


@pytest.fixture
def slurm(store, tmp_path_factory, monkeypatch, started):
    """Programs of Slurm on the PATH; the folder that stands for its state."""
    state, programs = tmp_path_factory.mktemp("slurm"), tmp_path_factory.mktemp("bin")
    for name in ("sbatch", "squeue", "scancel", "srun"):
        path = programs / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_slurm.py"} {name} "$@"\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), os.environ["PATH"]]))
    monkeypatch.setenv("FAKE_SLURM", str(state))
    yield state
    wait_until(lambda: not started.left())  # the controller ends a moment after its last task has left the queue


def engine(train="fake_train:train"):
    return Slurm(train, look_s=0.1, settle_s=0.2)


def test_the_script_asks_for_whole_nodes_and_leaves_the_site_to_slurm():
    text = script(Shape(16, 4, gpus=True), 3, ["python", "-m", "it is"], Path("/results/task-%a.log"), Site())
    assert text.splitlines() == [
        "#!/bin/bash",
        "#SBATCH --job-name=ssfx",
        "#SBATCH --array=0-2",
        "#SBATCH --nodes=16",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --gres=gpu:4",
        "#SBATCH --exclusive",
        "#SBATCH --requeue",
        "#SBATCH --signal=B:USR1@120",
        "#SBATCH --mem=0",
        "#SBATCH --open-mode=append",
        '#SBATCH --output="/results/task-%a.log"',
        "exec python -m 'it is' \"$SLURM_ARRAY_TASK_ID\"",
    ]
    spaced = script(Shape(1, 2, gpus=False), 1, ["true"], Path("/my résultats/100%/task-%a.log"), Site())
    assert '#SBATCH --output="/my résultats/100%%/task-%a.log"' in spaced
    with pytest.raises(ConfigError, match=r"Slurm cannot write logs below '/data/a\\ntouch b'"):
        script(Shape(1, 2, gpus=False), 1, ["true"], Path("/data/a\ntouch b/task-%a.log"), Site())
    assert "gres" not in script(Shape(1, 2, gpus=False), 1, ["true"], Path("log"), Site())


SITE = (
    "cluster.slurm.throttle=2 cluster.slurm.time_limit=1:30:00 cluster.slurm.partition=gpu cluster.slurm.account=me "
    "cluster.slurm.constraint='a100|h100' cluster.slurm.memory=64G cluster.slurm.modules=[cuda/12.4,nccl] "
    "cluster.slurm.environment={NCCL_DEBUG:INFO} cluster.slurm.warning_s=0"
)


def test_what_a_site_wants_is_said_in_the_script():
    site = resolve_job(["scheme=ddp", "cluster=16gpu", "engine=slurm", *SITE.split()]).site
    text = script(Shape(1, 2, gpus=False), 3, ["true"], Path("/r/%a"), site)
    assert text.splitlines() == [
        "#!/bin/bash -l",
        "#SBATCH --job-name=ssfx",
        "#SBATCH --array=0-2%2",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --exclusive",
        "#SBATCH --requeue",
        "#SBATCH --time=1:30:00",
        "#SBATCH --partition=gpu",
        "#SBATCH --account=me",
        '#SBATCH --constraint="a100|h100"',
        "#SBATCH --mem=64G",
        "#SBATCH --open-mode=append",
        '#SBATCH --output="/r/%a"',
        "module load cuda/12.4 || exit 1",
        "module load nccl || exit 1",
        "export NCCL_DEBUG=INFO",
        'exec true "$SLURM_ARRAY_TASK_ID"',
    ]
    figures = later(["draw", "it is"], Path("/r/f.log"), ["17", "18"], site)
    assert "#SBATCH --dependency=afterany:17:18" in figures
    assert "#SBATCH --partition=gpu" in figures
    assert "--time" not in figures
    assert figures.endswith("exec draw 'it is'\n")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800), ("30:20", 1820), ("1:30:00", 5400), ("2-12", 216000), ("1-0:30", 88200), ("1-0:0:5", 86405)],
)
def test_a_time_limit_is_read_as_slurm_reads_it(text, seconds):
    assert Site(time_limit=text).limit_s() == seconds


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("engine=slurm cluster.slurm.throttel=2", "did you mean 'slurm.throttle'"),
        ("engine=slurm cluster.slurm.throttle=0", "throttle must be at least 1"),
        ("engine=slurm cluster.slurm.throttle=a", "throttle must be a whole number"),
        ("engine=slurm cluster.slurm.time_limit=soon", "time_limit=soon is no time"),
        ("engine=slurm cluster.slurm.environment={a-b:1}", "'a-b' is no name of a variable"),
        ("engine=slurm cluster.slurm.modules=3", "must be a list of words"),
        ("cluster.slurm.partition=gpu", "cluster.slurm.partition is for Slurm, and these runs have engine=simulate"),
    ],
)
def test_what_cannot_be_said_to_slurm_is_refused(words, said):
    with pytest.raises(ConfigError, match=said):
        resolve_job(["scheme=ddp", "cluster=16gpu", *words.split()])


PUNCTUATION = [
    ("partition=a,b", "--partition=a,b"),
    ("partition='a,b'", "--partition=a,b"),
    ("partition=gpu-a100:shared", "--partition=gpu-a100:shared"),
    ("constraint=a100&ib", '--constraint="a100&ib"'),
    ("constraint=[rack1*2&rack2*4]", '--constraint="[rack1*2&rack2*4]"'),
    ("constraint=(a|b)&c", '--constraint="(a|b)&c"'),
    ("account=0123", "--account=0123"),
    ("qos=long+big", "--qos=long+big"),
    ("time_limit=UNLIMITED", "--time=UNLIMITED"),
    ("time_limit=3-00:00:00", "--time=3-00:00:00"),
    ("memory=492GB", "--mem=492GB"),
    ("gres=gpu:a100:4", "--gres=gpu:a100:4"),
    ("gres=gpu:a100", "--gres=gpu:a100:4"),
    ("gres=gpu:3g.20gb:4(S:0-1)", '--gres="gpu:3g.20gb:4(S:0-1)"'),
    ("gres=gpu:a100:2,gpu:h100:2,nvme:1", "--gres=gpu:a100:2,gpu:h100:2,nvme:1"),
    ("gres=nvme:1", "--gres=gpu:4,nvme:1"),
    ("modules=cuda/12.4,nccl", "module load nccl || exit 1"),
    ("modules=[cuda/12.4]", "module load cuda/12.4 || exit 1"),
    ("modules=[²]", "module load '²' || exit 1"),
    ("environment={NCCL_SOCKET_IFNAME:^lo,docker}", "export NCCL_SOCKET_IFNAME='^lo,docker'"),
    ("environment={NCCL_SOCKET_IFNAME=^lo,docker,NCCL_DEBUG=INFO}", "export NCCL_SOCKET_IFNAME='^lo,docker'"),
    ("environment=NCCL_SOCKET_IFNAME=^lo,docker", "export NCCL_SOCKET_IFNAME='^lo,docker'"),
    ("environment={NCCL_IB_HCA:mlx5_0:1,mlx5_1:1,NCCL_DEBUG:INFO}", "export NCCL_IB_HCA=mlx5_0:1,mlx5_1:1"),
    ("environment={NCCL_IB_HCA:=mlx5_0,=mlx5_1}", "export NCCL_IB_HCA==mlx5_0,=mlx5_1"),
    ('environment={A:"x,B:1",C:2}', "export A=x,B:1"),
    ("environment={http_proxy:http://p:3128,no_proxy:a}", "export http_proxy=http://p:3128"),
]


@pytest.mark.parametrize(("word", "line"), PUNCTUATION)
def test_slurms_punctuation_is_taken_as_it_stands_in_scripts(word, line):
    site = resolve_job(["scheme=ddp", "cluster=16gpu", "engine=slurm", f"cluster.slurm.{word}"]).site
    found = script(Shape(4, 4, gpus=True), 1, ["true"], Path("/r/%a"), site).splitlines()
    assert line in found or f"#SBATCH {line}" in found


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("partition=a,b", "for Slurm write cluster.slurm.partition=a,b"),
        ("constraint=a&b", "for Slurm write 'cluster.slurm.constraint=a&b'"),
        ("gres=gpu:a100:4", "for Slurm write cluster.slurm.gres=gpu:a100:4"),
        ("time=UNLIMITED", "for Slurm write cluster.slurm.time_limit=UNLIMITED"),
        ("mem=0", "for Slurm write cluster.slurm.memory=0"),
        (
            "NCCL_SOCKET_IFNAME=^lo,docker",
            "for Slurm write 'cluster.slurm.environment={NCCL_SOCKET_IFNAME:^lo,docker}'",
        ),
        ("cluster.slurm.time=3", "unknown option of cluster 'slurm.time'; did you mean 'slurm.time_limit'"),
        ("cluster.slurm.mem=3", "did you mean 'slurm.memory'"),
        ("cluster.slurm.partition=", "is not key=value"),
        ("cluster.slurm.environment={^lo}", "'^lo' is no name of a variable; write"),
        ("cluster.slurm.environment={A:1,A:2}", "A is given twice"),
        ("--partition=a,b", "--partition is a flag of sbatch: write cluster.slurm.partition=a,b"),
        ("--gres=gpu:a100:4", "--gres is a flag of sbatch: write cluster.slurm.gres=gpu:a100:4"),
        ("--constraint=a&b", "write 'cluster.slurm.constraint=a&b'"),
        ("--gpus-per-node=4", "write cluster.devices_per_node=4"),
    ],
)
def test_what_is_said_to_sbatch_elsewhere_is_answered_with_what_to_type(word, said, capsys):
    assert said in refusal(capsys, "run", "scheme=ddp", "cluster=16gpu", "engine=slurm", "--print", word)


def test_a_number_of_gpus_that_is_not_the_clusters_is_refused(monkeypatch):
    with pytest.raises(
        ConfigError, match=r"gres=gpu:a100:2 asks for 2 GPUs .* has 4; write cluster\.devices_per_node=2"
    ):
        script(Shape(1, 4, gpus=True), 1, ["true"], Path("/r/%a"), Site(gres="gpu:a100:2"))
    monkeypatch.setenv("SBATCH_GRES", "gpu:a100:8")
    with pytest.raises(ConfigError, match="gres=gpu:a100:8 asks for 8 GPUs"):
        script(Shape(1, 4, gpus=True), 1, ["true"], Path("/r/%a"), Site())
    with pytest.raises(ConfigError, match="gres=gpu:4 and SBATCH_GRES=gpu:a100:8 differ"):
        Site(gres="gpu:4").directives()


def test_what_yaml_has_changed_is_not_said_to_slurm():
    for value, said in ((True, "NAME is True in YAML"), (None, "NAME is None in YAML"), (1.1, "NAME is 1.1 in YAML")):
        with pytest.raises(ConfigError, match=f"{said}; put its value in quotes"):
            Site.of({"environment": {"NAME": value}})
    assert Site.of({"environment": {"NAME": 3}, "partition": ["a", "b"]}).partition == "a,b"


def test_no_limit_is_no_limit():
    assert [Site(time_limit=text).limit_s() for text in ("UNLIMITED", "infinite", "0", "0:00")] == [None] * 4


def test_keys_for_slurm_are_refused_where_nothing_is_submitted(capsys):
    assert main(["simulate", "cluster=16gpu", "cluster.slurm.account=me"]) == 2
    assert "cluster.slurm.account is for Slurm and says nothing of a cluster" in capsys.readouterr().err


def test_a_key_and_a_variable_of_slurm_must_not_differ(monkeypatch):
    monkeypatch.setenv("SBATCH_PARTITION", "cpu")
    with pytest.raises(ConfigError, match="partition=gpu and SBATCH_PARTITION=cpu differ; drop one of them"):
        Site(partition="gpu").directives()
    assert Site(partition="cpu").directives() == ["--partition=cpu", "--mem=0"]
    monkeypatch.setenv("SBATCH_OUTPUT", "there")
    with pytest.raises(ConfigError, match="unset SBATCH_OUTPUT"):
        Site().directives()


def test_ranks_run_in_a_container_where_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    job = SimpleNamespace(case=two_nodes(), attempt=1, run_dir=tmp_path / "runs" / "abc", attempt_dir=tmp_path)
    for image, starts, option in (
        (
            "/images/ssfx.sif",
            f"exec apptainer exec --bind {tmp_path} /images/ssfx.sif python -m torch",
            "--cpu-bind=none",
        ),
        ("nvcr.io/it:1", "exec python -m torch", "--container-image=nvcr.io/it:1"),
        (None, f"exec {sys.executable} -m torch", "--cpu-bind=none"),
    ):
        launch = allocation.NodesLaunch([job], "train", None, None, None, None, container=image)
        ((command, _),) = launch._commands(tmp_path / "batch.json")
        assert option in command
        assert command[-1].startswith(starts)


@pytest.mark.torchrun
@pytest.mark.slow
def test_every_case_is_a_task_on_nodes_of_its_own_and_a_rank_that_dies_costs_its_case_only(
    store, slurm, monkeypatch, capfd
):
    cases = [two_nodes(seed=seed) for seed in (1, 2)]
    monkeypatch.setenv("SSFX_FAULT", f"kill:rank=1,step=4,phase=backward,run={cases[0].run_id}")
    with pytest.raises(RunsFailed, match=rf"{cases[0].run_id} .* failed: rank 1 .*; see .*task-0\.log$"):
        engine().run(cases, store)
    assert [store.status(case) for case in cases] == ["failed", "finished"]
    (job,) = slurm.glob("job-*")
    assert {"array=0-1", "nodes=2"} <= set(job.read_text().splitlines())
    assert "slurm: job 100, 2 task(s) of 2 node(s), 1 rank(s) on each" in capfd.readouterr().err
    row = store.row(cases[1])
    assert row.origin.kind == "measured"
    assert row.origin.hardware.startswith("2 x (")
    assert row.manifest["slurm"] == {"job": "1001", "nodes": 2}
    assert "GLOO_SOCKET_IFNAME" not in row.manifest["environment"]
    assert row.metrics["iteration_s"] == 4.0
    assert len(row.manifest["rank_cores"]) == 2
    assert engine().run(cases[1:], store) == [row]
    assert len(list(slurm.glob("job-*"))) == 1
    assert "already finished, nothing to do" in capfd.readouterr().err


def test_a_task_that_never_got_to_its_case_says_its_last_line(store, slurm, monkeypatch):
    monkeypatch.setattr("ssfx.lab.engines.submission.sys.executable", "/no/such/python")
    said = r"100_0 ended with: .*/no/such/python.*; see .*task-0\.log \(1 more failed: \w+\)"
    with pytest.raises(RunError, match=said):
        engine().run([two_nodes(seed=seed) for seed in (1, 2)], store, progress=False)


def test_a_command_that_was_interrupted_leaves_its_tasks_to_slurm_and_finds_them_again(
    store, slurm, monkeypatch, capfd
):
    (slurm / "hold").touch()
    case = two_nodes()

    def interrupt(_):
        raise KeyboardInterrupt

    # Not time.sleep itself, which subprocess calls, too.
    monkeypatch.setattr("ssfx.lab.engines.slurm.time", SimpleNamespace(sleep=interrupt, monotonic=time.monotonic))
    for said in ("slurm: job 100", "is Slurm's task 100_0 already"):
        with suppress(KeyboardInterrupt):
            engine().run([case], store)
        err = capfd.readouterr().err
        assert said in err
        assert "slurm: tasks wait for Nodes required for job are DOWN" in err
        assert "ssfx cancel launcher" in err
    assert len(list(slurm.glob("job-*"))) == 1


def test_what_slurm_refuses_is_said_in_its_words(store, slurm):
    (slurm / "refuse").touch()
    with pytest.raises(RunError, match=r"sbatch failed: .*Invalid partition name"):
        engine().run([two_nodes()], store, progress=False)
    (slurm / "silent").touch()
    said = []
    with pytest.raises(RunError, match=r"squeue failed: .*Unable to contact slurm controller"):
        queued(tries=3, pause_s=0.0, say=said.append)
    assert len(said) == 1
    assert re.search(r"Unable to contact slurm controller; asking Slurm until \d\d:\d\d$", said[0])


def test_without_slurm_nothing_is_started(store, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="engine=slurm cannot submit anything, sbatch is not on the PATH"):
        engine().run([two_nodes()], store)
    assert not store.runs.exists()


def test_with_fail_fast_the_other_tasks_are_ended(store, slurm, monkeypatch):
    (slurm / "hold").touch()
    cases = [two_nodes(seed=seed) for seed in (1, 2)]
    real = Slurm._submitted

    def one_is_lost(*arguments):
        tasks = real(*arguments)
        (slurm / "queue" / tasks[cases[0].run_id].task).unlink()
        return tasks

    monkeypatch.setattr(Slurm, "_submitted", one_is_lost)
    with pytest.raises(RunsFailed, match="100_0 ended without a word"):
        engine().run(cases, store, progress=False, fail_fast=True)
    assert list(slurm.glob("queue/*")) == []
    assert [store.status(case) for case in cases] == ["failed", "new"], "what Slurm ended is a failed run"


WORDS = ["scheme=ddp,wfbp", "experiment=throughput", "workload=digits_resnet", f"cluster={CLUSTER.partition('(')[0]}"]
WORDS += ["cluster.device=cpu", "cluster.devices_per_node=1", "cluster.nodes=2", "engine=slurm", "preset=smoke"]


def test_the_scripts_and_what_they_cost_are_printed_before_anything_is_submitted(store, slurm, capsys):
    out = output(capsys, "run", *WORDS, "cluster.slurm.time_limit=30", "--print")
    assert "2 runs x 2 exclusive nodes x 30 min: at most 2 node-hours" in out
    assert "#SBATCH --array=0-1\n" in out
    assert "nothing was submitted" in out
    assert not list(slurm.iterdir())
    assert main(["run", "scheme=ddp", "--print"]) == 2
    assert "--print is for what is submitted to Slurm, and these runs have engine=torchrun" in capsys.readouterr().err


def test_a_command_that_does_not_wait_leaves_a_job_for_the_figures_and_can_be_watched_and_cancelled(
    store, slurm, capsys, monkeypatch, tmp_path
):
    monkeypatch.setenv("SSFX_RESULTS", str(tmp_path))
    (slurm / "hold").touch()
    out = output(capsys, "run", *WORDS, "--no-wait")
    assert "job 101 draws " in out
    figures = (tmp_path / "slurm" / "figures-100.sh").read_text()
    assert "#SBATCH --dependency=afterany:100" in figures
    assert f"exec env SSFX_RESULTS={tmp_path} " in figures
    assert "ssfx.cli figures " in figures
    assert main(["run", *WORDS, "--no-wait"]) == 0
    assert len(list(slurm.glob("job-*"))) == 2, "what Slurm has already is not submitted again"
    assert "is Slurm's task 100_0 already" in capsys.readouterr().err

    shown = snapshot(store)
    assert shown.lines == ["throughput: 2 waiting in Slurm"]
    assert shown.under_way
    assert "did you mean 'throughput'" in refusal(capsys, "cancel", "througput")
    assert "throughput: 2 task(s) of job(s) 100 ended" in output(capsys, "cancel", "experiment=throughput")
    assert output(capsys, "status", "--watch").splitlines()[1:] == ["throughput: 2 half-finished"]
    assert "no task is left" in output(capsys, "cancel", "throughput")


def test_a_task_that_stopped_in_time_is_requeued_unless_it_got_nowhere(store, tmp_path, monkeypatch, capsys):
    case, again = two_nodes(), []
    sweep = {"root": str(tmp_path), "train": "", "container": None, "stall_timeout_s": None, "cases": [asdict(case)]}
    (tmp_path / "sweep.json").write_text(json.dumps(sweep))
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setattr(allocation, "requeue", again.append)
    folder = store.run_dir(case) / "checkpoint" / "step-4"

    def stops(*_, **__):
        if made:
            folder.mkdir(parents=True)
            (folder / "COMPLETE").touch()
        raise RequeueError("stopped at step 4")

    monkeypatch.setattr(allocation.Allocation, "run", stops)
    for made, code in ((False, 1), (True, REQUEUE_EXIT_CODE)):
        assert allocation.main(str(tmp_path / "sweep.json"), "0") == code
        assert again == (["17"] if made else [])
    assert "no checkpoint since it began: give it more cluster.slurm.time_limit" in capsys.readouterr().err
