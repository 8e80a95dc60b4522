"""Whatever is typed wrong is answered by exit 2 and one line that names the nearest thing that works."""

import re

import pytest
from refusals import refusal

from ssfx.cli import main
from ssfx.config.overrides import read
from ssfx.core.errors import ConfigError
from ssfx.lab.config.cases import resolve_job

WRONG = [
    ("scheme=dpp", "did you mean 'ddp'?"),
    ("scheme=", "'scheme=' is not key=value"),
    ("scheme=1", "unknown scheme '1'; there are ddp_fp16, ddp_quantized of fewer bits, topk"),
    ("scheme.bucket_cap_byte=1", "did you mean 'bucket_cap_bytes'?"),
    ("scheme=ddp scheme.bucket_cap_bytes=abc", "bucket_cap_bytes of scheme ddp"),
    ("scheme=ddp scheme.bucket_cap_bytes=0", "bucket caps must be at least 1 byte"),
    ("scheme=ddp scheme.grouping=none", "the chosen scheme has no option grouping; choose scheme="),
    ("scheme=ddp,per_tensor scheme.grouping=none", "the chosen scheme has no option grouping"),
    ("densty=0.1", "did you mean 'density'?"),
    ("density=2", "must be in (0, 1], got 2"),
    ("density=0", "must be in (0, 1], got 0"),
    ("density=abc", "density must be a number or null, got 'abc'"),
    ("density=true", "density must be a number or null, got True"),
    ("density=[0.1]", "is a list; write density=0.1"),
    ("density=[0.1", "cannot read 'density=[0.1'"),
    ("density=0.1 density=0.2", "density is given twice; write density=a,b for both"),
    ("density", "did you mean density=...?"),
    ("=1", "is not key=value"),
    ("+density=0.1", "no key is added, all of them exist; write density=0.1"),
    ("++scheme=ddp", "write scheme=ddp"),
    ("~memory", "Hydra's ~key is not supported; to unset a key, write memory=null"),
    ("hydra/launcher=joblib", "write engine=torchrun, engine=slurm or engine=simulate"),
    ("hydra.run.dir=out", "write SSFX_RESULTS=DIR ssfx run"),
    ("hydra.job.name=mine", "ssfx reads Hydra's files, without its application; drop it"),
    ("hydra.verbose=true", "logs are in results/runs/<run_id>; drop it"),
    ("hydra.searchpath=[mine]", "write --config-dir DIR"),
    ("hydra.mode=MULTIRUN", "a comma list is a sweep in any case; drop it"),
    ("compressor@other=topk", "keys are only changed"),
    ("throughput", "did you mean experiment=throughput?"),
    ("ddp", "did you mean scheme=ddp?"),
    ("scheme=ddp density=0.1", "density=0.1 would have no effect; drop it or choose scheme=per_tensor"),
    ("scheme=ddp,wfbp density=0.1", "would have no effect"),
    ("scheme=ddp memory=residual", "memory=residual would have no effect"),
    ("compressor=topk scheme=ddp", "use compressor=fp16, or scheme=per_tensor compressor=topk"),
    ("compressor=randomk scheme=ddp", "randomk selects some; use compressor=fp16"),
    ("scheme=ddp compressor=fp16 memory=residual", "use memory=none"),
    ("scheme=per_tensor compressor=fp16 density=0.1", "drop it or choose compressor=topk"),
    ("scheme=per_tensor compressor=fp16,bf16 density=0.1", "drop it or choose compressor=topk"),
    ("scheme=per_tensor compressor=randomk memory=dgc", "needs to see which elements were sent; use memory=residual"),
    ("stall_timeout_s=0", "stall_timeout_s must be positive"),
    ("stall_timeout_s=60,90", "one command takes one stall_timeout_s"),
    ("compressor=topkk", "did you mean 'topk'?"),
    ("compressor=topk(value_dtyp=float16)", "did you mean 'value_dtype'?"),
    ("compressor=topk(value_dtype=float17)", "value_dtype must be one of float32"),
    ("compressor=topkk(value_dtype=float16)", "did you mean 'topk'?"),
    ("compressor=topk(value_dtype=float16) compressor.value_dtype=float32", "give one option twice"),
    ("compressor=topk compressor.value_dtyp=float16", "did you mean 'value_dtype'?"),
    ("compressor=topk compressor.value_dtype=float17", "value_dtype must be one of float32"),
    ("memroy.decay=1", "did you mean 'memory'?"),
    ("model.width=3", "model has no options"),
    ("steps.x=3", "steps has no options"),
    ("cluster=65gpu", "to describe 65 GPUs"),
    (
        "cluster=64gpu engine=torchrun",
        "this machine (2 cores, no GPU), which cluster=64gpu is not; use engine=simulate",
    ),
    ("cluster=64gpu,local", "start ssfx run once for each, or choose engine=simulate"),
    ("cluster=emulated_2x1gbit,emulated_4x1gbit", "one command runs on one cluster"),
    ("cluster=64gpu seed=1", "seed has no effect on a simulated step; drop it"),
    ("cluster=64gpu preset=short", "preset has no effect on a simulated step; drop it"),
    ("cluster=64gpu memory.decay=0.5", "memory.decay has no effect on a simulated step; drop it"),
    ("cluster=64gpu dataset.seq_len=64 workload=text_gpt2", "dataset.seq_len has no effect on a simulated step"),
    ("cluster=64gpu cluster.device=v100 precision=bf16", "which device v100 has not; use precision=fp32 or fp16"),
    ("cluster=64gpu threads=2", "profiles are of one thread per rank"),
    (
        "cluster=64gpu experiment=time_to_quality",
        "about what real gradients do, which a simulation does not know; choose experiment=",
    ),
    ("cluster=64gpu world_size=8", "cluster=64gpu has 64 devices, so world_size=8 does not fit"),
    (
        "workload=bert_large_squad",
        "dataset=squad needs train*.parquet, validation*.parquet, tokenizer/tokenizer.json in",
    ),
    ("cluster.nodes=3", "write cluster=box cluster.nodes=3"),
    ("engine=simulat", "did you mean 'simulate'?"),
    ("engine=slurm", "engine=slurm asks Slurm for nodes, and cluster=local is on this machine; name the nodes"),
    ("engine=slurm cluster=emulated_2x1gbit", "cluster=emulated_2x1gbit is on this machine"),
    ("engine=slurm cluster=16gpu cluster.inter.gbps=10", "cluster.inter.gbps is what it is on Slurm's nodes; drop it"),
    ("engine=slurm cluster=16gpu,32gpu", "one command runs on one cluster"),
    ("engine=torchrun,simulate", "one command runs one engine"),
    ("engine=netns", "engine=netns does not run cluster=local; use engine=torchrun, or another cluster"),
    ("engine=torchrnu", "did you mean 'torchrun'?"),
    ("preset=shrt", "did you mean 'short'?"),
    ("preset=smoke,short", "one command takes one preset"),
    ("experiment=throughptu", "did you mean 'throughput'?"),
    ("experiment=fig12", "did you mean 'long_quality'?"),
    ("experiment=throughput,density", "one command runs one experiment"),
    ("experiment=throughput model=resnet_tiny", "choose one with workload=..."),
    ("workload=digits_resne", "did you mean 'digits_resnet'?"),
    ("model=bert_large", "to time it without, use dataset=synthetic"),
    ("workload=digits_resnet model=bert_large", "use dataset=squad"),
    ("model=lstm_tiny dataset=digits", "use dataset=stdlib_text"),
    ("dataset.seq_len=64", "the chosen dataset has no option seq_len; choose dataset="),
    ("world_size=500", "is too much for the 2 cores here; use at most world_size=16"),
    ("threads=64", "more than the 2 cores here; use threads=2"),
    ("batch_size=1e12", "batch_size must be at most 10000000"),
    ("momentum=nan", "momentum must be a finite number, got nan"),
    ("lr=inf", "lr must be a finite number, got inf"),
    ("seed=1e20", "seed must be at most 4294967295"),
    ("world_size=0", "world_size must be at least 1"),
    ("world_size=1.5", "world_size must be a whole number or null"),
    ("steps=3", "leaves none of steps=3 to measure"),
    ("seed=-1", "seed must not be negative"),
    ("lr=0", "lr must be positive"),
    ("clip_norm=-1", "clip_norm must be positive"),
    ("trace=yes", "trace must be true or false, got 'yes'"),
    ("evaluate=1", "evaluate must be true or false"),
    ("wandb=of", "did you mean 'off'?"),
    ("optimizer=adamm", "did you mean 'adam'?"),
    ("precision=fp61", "did you mean 'fp16'?"),
    ("precision=fp16", "on the CPU use bf16"),
    ("device=gpu", "unknown device 'gpu'"),
    ("device=cuda", "use device=cpu"),
]


pytestmark = pytest.mark.usefixtures("two_cores")


@pytest.mark.parametrize(("words", "expected"), WRONG)
def test_wrong_request_is_one_line_and_exit_2(words, expected, capsys):
    assert main(["run", "--dry-run", *words.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("ssfx: ")
    assert captured.err.count("\n") == 1
    assert expected in captured.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("steps=3", "a plan does not depend on steps"),
        ("scheme=ddp,wfbp", "shows one case, got 2 values of scheme"),
        ("cluster=64gpu world_size=8", "cluster=64gpu has 64 devices"),
        ("cluster=64gpu device=cpu", "has a100 devices"),
        ("cluster=64gpu cluster.nodes=0", "cluster.nodes must be a whole number of at least 1"),
        ("cluster=64gpu cluster.nods=1", "did you mean 'nodes'?"),
        ("cluster=64gpu cluster.inter.gbps=fast", "cluster.inter.gbps must be a number, got 'fast'"),
        ("cluster=64gpu cluster.inter.gbps=0", "cluster.inter.gbps must be in [0.001, 6400] Gbit/s, got 0"),
        ("cluster=64gpu cluster.intra.latency_s=nan", "cluster.intra.latency_s must be in [0, 0.5] s, got nan"),
        ("cluster=64gpu cluster.device=3", "unknown device '3'; write the nearest by numbers"),
        ("scheme=per_tensor compressor=bf16 density=0.1", "drop it or choose compressor=topk"),
        ("model=bert_lrge", "did you mean 'bert_large'; or count your own"),
    ],
)
def test_wrong_plan_request_is_one_line_and_exit_2(words, expected, capsys):
    assert expected in refusal(capsys, "plan", *words.split())


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["rnu"], "unknown command 'rnu'; did you mean 'run'?"),
        (["list", "scheme"], "did you mean 'schemes'?"),
        (["run", "--dryrun"], "did you mean --dry-run?"),
        (["status", "extra"], "ssfx status has no place for extra; it takes --claims"),
        (["figures", "fig99"], "unknown figure 'fig99'"),
    ],
)
def test_wrong_command_is_one_line_and_exit_2(argv, expected, capsys):
    assert expected in refusal(capsys, *argv)


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("seed=range(0,3)", (0, 1, 2)),
        ("seed=range(1,9,4)", (1, 5)),
        ("density=choice(0.1,1e-3)", (0.1, 0.001)),
        ("scheme=glob(ssfusion_*)", ("ssfusion_i", "ssfusion_naive", "ssfusion_o", "ssfusion_oi")),
        ("scheme=glob(ss*,exclude=ssf*)", ("ssgd",)),
        ("seed=sort(3,1,2)", (1, 2, 3)),
        ("cluster=64gpu,16gpu", ("64gpu", "16gpu")),
        ("compressor=dgc(value_dtype=float16),topk", ("dgc(value_dtype=float16)", "topk")),
        (
            "compressor=choice(dgc(mode=faithful,value_dtype=float16),topk)",
            ("dgc(mode=faithful,value_dtype=float16)", "topk"),
        ),
        ("density='0.1'", "density must be a number"),
        ("scheme=glob(xyz*)", "fits no scheme"),
        ("seed=glob(*)", "glob() chooses files and components, and seed is a number or a word"),
        ("density=interval(0,1)", "names no values"),
        ("scheme=ddp(1)", "options are written name(option=value)"),
        ("density=foo(1)", "range(), choice() and glob() are as in Hydra"),
    ],
)
def test_values_are_what_hydras_grammar_says(word, values):
    if isinstance(values, tuple):
        assert read([word]) == {word.partition("=")[0]: values}
    else:
        with pytest.raises(ConfigError, match=re.escape(values)):
            read([word])


@pytest.mark.parametrize(
    ("words", "apart"),
    [
        (
            "scheme=per_tensor compressor=topk(value_dtype=float16)",
            "scheme=per_tensor compressor=topk compressor.value_dtype=float16",
        ),
        (
            "scheme=mergecomp(max_groups=3,profile_iters=2)",
            "scheme=mergecomp scheme.max_groups=3 scheme.profile_iters=2",
        ),
        ("scheme=per_tensor memory=momentum(decay=0.5)", "scheme=per_tensor memory=momentum memory.decay=0.5"),
        ("workload=text_gpt2 dataset=stdlib_text(seq_len=64)", "workload=text_gpt2 dataset.seq_len=64"),
    ],
)
def test_options_in_brackets_are_those_of_the_choice(words, apart):
    assert resolve_job(words.split()).cases == resolve_job(apart.split()).cases


def test_each_choice_of_a_sweep_has_its_own_options():
    cases = resolve_job(["scheme=per_tensor", "compressor=topk(value_dtype=float16),topk,dgc(mode=faithful)"]).cases
    assert [case.compressor for case in cases] == ["topk(value_dtype=float16)", "topk", "dgc(mode=faithful)"]
