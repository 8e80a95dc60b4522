"""Requests become the right cases: grids, baselines, defaults, repeats, identities."""

import pytest

from ssfx.advice.cases import simulate_case
from ssfx.config.compose import compose
from ssfx.config.groups import choices
from ssfx.config.plans import resolve_plan
from ssfx.config.simulations import resolve_simulations
from ssfx.core import machine
from ssfx.core.errors import ConfigError
from ssfx.core.paths import reference_dir
from ssfx.lab.config import plans
from ssfx.lab.config.cases import resolve_job
from ssfx.lab.config.plans import _check_warmup, check_plans
from ssfx.lab.results.store import read_rows
from ssfx.schemes import schemes
from ssfx.schemes.make_plan import make_plan


@pytest.fixture(autouse=True)
def cpu_only(monkeypatch):
    monkeypatch.setattr(machine, "gpus", tuple)
    monkeypatch.setattr(machine, "cores", lambda: 4)


def job(text):
    return resolve_job(text.split())


def test_a_request_is_the_same_cases_every_time():
    assert [c.run_id for c in job("").cases] == [c.run_id for c in job("").cases]


def test_defaults_come_from_the_components():
    (case,) = job("scheme=per_tensor").cases
    assert (case.compressor, case.density, case.memory) == ("dgc", schemes["per_tensor"].defaults.density, "residual")
    assert case.scheme_options == {}
    assert (case.model, case.dataset, case.device, case.world_size) == ("resnet_tiny", "digits", "cpu", 2)


def test_compressor_without_error_feedback_gets_no_memory_and_no_density():
    (case,) = job("scheme=per_tensor compressor=fp16").cases
    assert (case.compressor, case.memory, case.density) == ("fp16", "none", None)


def test_options_become_specs_that_name_only_what_differs():
    (case,) = job(
        "scheme=per_tensor scheme.grouping=none compressor.value_dtype=float16 memory=momentum memory.decay=0.5"
    ).cases
    assert case.compressor == "dgc(value_dtype=float16)"
    assert case.memory == "momentum(decay=0.5)"
    assert case.scheme_options == {"grouping": "none"}


def test_an_option_set_to_its_default_is_the_same_run():
    assert job("scheme=per_tensor compressor.value_dtype=float32").cases == job("scheme=per_tensor").cases


def test_dense_schemes_of_a_mixed_sweep_are_baselines():
    mixed = job("scheme=ddp,per_tensor density=0.1,0.01 compressor=topk memory=residual")
    assert mixed.baselines == ("ddp",)
    dense = [c for c in mixed.cases if c.scheme == "ddp"]
    assert [(c.compressor, c.density, c.memory) for c in dense] == [(None, None, None)]
    assert [c.density for c in mixed.cases if c.scheme == "per_tensor"] == [0.1, 0.01]


def test_dense_schemes_alone_take_an_additive_compressor():
    both = job("scheme=ddp,wfbp compressor=fp16")
    assert both.baselines == ()
    assert {c.compressor for c in both.cases} == {"fp16"}


def test_a_user_value_replaces_the_axis_of_the_experiment():
    full = job("experiment=throughput")
    assert {c.scheme for c in full.cases} == set(EVERY_STEP)
    assert len({c.model for c in full.cases}) == 3
    one = job("experiment=throughput scheme=ddp,wfbp workload=text_lstm")
    assert [(c.scheme, c.model) for c in one.cases] == [("ddp", "lstm_tiny"), ("wfbp", "lstm_tiny")]


def test_throughput_has_the_single_worker_ideal_of_every_workload():
    ideal = [c for c in job("experiment=throughput").cases if c.world_size == 1]
    assert [(c.scheme, c.model) for c in ideal] == [("ssgd", m) for m in ("resnet_tiny", "lstm_tiny", "gpt2_tiny")]


def test_repeats_are_the_outer_loop():
    cases = job("scheme=ddp,wfbp repeats=3").cases
    assert [(c.scheme, c.repeat) for c in cases] == [(s, r) for r in range(3) for s in ("ddp", "wfbp")]
    assert len({c.run_id for c in cases}) == 6


def test_user_scalars_win_over_preset_workload_and_experiment():
    (case,) = job(
        "experiment=time_to_quality workload=mini_vgg scheme=ddp preset=full steps=7 warmup_steps=1 lr=0.25 repeats=1"
    ).cases
    assert (case.steps, case.warmup_steps, case.lr) == (7, 1, 0.25)


def test_a_run_of_quality_trains_longer_than_a_timing_run_and_evaluates():
    (timing,) = job("scheme=ddp").cases
    quality = job("experiment=time_to_quality workload=mini_vgg scheme=ddp repeats=1").cases[0]
    assert quality.steps > timing.steps
    assert quality.evaluate


def test_a_density_is_kept_with_a_compressor_that_auto_was_told_to_use():
    (case,) = job("scheme=auto compressor=dgc density=0.1").cases
    assert case.plan_options == {"compressor": "dgc", "density": 0.1}
    (usual,) = job("scheme=auto compressor=dgc").cases
    assert usual.plan_options == {"compressor": "dgc"}


def test_a_density_in_a_sweep_of_compressors_applies_where_it_can():
    swept = job("scheme=ddp,per_tensor compressor=bf16,topk,fp16 density=0.1")
    assert (swept.baselines, swept.without_density) == (("ddp",), ("bf16", "fp16"))
    assert [(c.compressor, c.density) for c in swept.cases] == [
        (None, None),
        ("bf16", None),
        ("topk", 0.1),
        ("fp16", None),
    ]


def test_how_long_to_wait_for_a_silent_run_is_no_part_of_a_case():
    assert job("").stall_timeout_s == 90
    patient = job("stall_timeout_s=600")
    assert patient.stall_timeout_s == 600
    assert patient.cases == job("").cases


def test_world_size_on_the_cpu_is_two_unless_there_is_one_core(monkeypatch):
    assert job("scheme=ddp world_size=3").cases[0].world_size == 3
    monkeypatch.setattr(machine, "cores", lambda: 1)
    assert job("scheme=ddp").cases[0].world_size == 1


def test_gpus_are_used_when_they_are_here(monkeypatch):
    monkeypatch.setattr(machine, "gpus", lambda: ("A", "A", "A", "A"))
    (case,) = job("scheme=ddp").cases
    assert (case.device, case.world_size) == ("cuda", 4)
    (case,) = job("scheme=ddp device=cpu").cases
    assert (case.device, case.world_size) == ("cpu", 2)


EVERY_STEP = [scheme.name for scheme in schemes if not scheme.in_rounds]
NOT_OF_AUTHORS = (
    "achieved_density",
    "long_quality",
    "profiling_overhead",
    "quickstart",
    "sharded_quality",
    "throughput",
)
"""Experiments whose workloads no author trained, so that preset=paper has nothing to say about them."""


PLANNED: set[tuple[object, ...]] = set()
"""What has been planned without an error for one preset and need not be for the others."""


def with_files(folder, monkeypatch):
    """Have files of the names that the data sets of experiments want, which nobody reads."""
    batches = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta"]
    for part, names in {
        "wikitext-2": ("wiki.train.tokens", "wiki.valid.tokens"),
        "cifar-10-batches-py": batches,
    }.items():
        (folder / part).mkdir()
        for name in names:
            (folder / part / name).touch()
    monkeypatch.setenv("SSFX_DATA", str(folder))


_LSTM = "engine=virtual workload=lstm_wikitext2_small repeats=1"
_METHODS = ("scheme=ddp", "scheme=per_tensor compressor=topk density=0.01")
BESIDE_THE_GRID = (
    [
        "engine=virtual seed=1 repeats=1",
        "engine=virtual seed=2 repeats=1 workload=gpt2_small_wikitext2 clip_norm=1",
    ]
    + [
        f"engine=torchrun seed={seed} repeats=1 workload=gpt2_small_wikitext2 clip_norm=1 scheme=ddp_quantized "
        "compressor=fp8 exempt=[auto]"
        for seed in (1, 2)
    ]
    + [
        f"engine=torchrun repeats=5 workload={words} {method}"
        for words in ("lstm_wikitext2_small", "vgg_small_cifar10")
        for method in ("scheme=ddp", "scheme=per_tensor compressor=topk density=0.01")
    ]
    + [
        f"{_LSTM} {words} {method}"
        for words in ("optimizer=sgd lr=1 clip_norm=1 world_size=64", "world_size=16 seed=1")
        for method in _METHODS
    ]
    + [
        f"engine=virtual cluster=emulated_4x100mbit scheme=auto seed={seed} repeats=1 workload={words}"
        for seed in (0, 1)
        for words in ("lstm_wikitext2_small", "vgg_small_cifar10", "gpt2_small_wikitext2 clip_norm=1")
    ]
)
"""More ranks than real ones of a small machine, more seeds, and auto where compressing pays."""


def test_recorded_long_runs_are_those_of_one_command(tmp_path, monkeypatch):
    """The thinned rows of long training: none is shorter than 1,000 steps, and the experiment has every one of them.

    But for MiCRO's Fig. 2, whose 16 workers are counted for 300 steps, and have no dense twin.
    """
    with_files(tmp_path, monkeypatch)
    made = {
        case.run_id: case
        for words in ("engine=torchrun", "engine=virtual", *BESIDE_THE_GRID)
        for case in job(f"experiment=long_quality {words}").cases
    }
    rows = read_rows(reference_dir() / "long_quality_local.jsonl")
    assert len(rows) >= 26
    assert {row.run_id for row in rows} <= set(made)
    short = [case for case in made.values() if case.steps < 1000]
    assert {(case.scheme, case.world_size, case.steps) for case in short} == {
        ("topk", 16, 300),
        ("hard_threshold", 16, 300),
    }
    assert all(20 <= len(row.curve["step"]) <= 50 for row in rows if row.case.steps >= 1000)
    horizon = {case.run_id for case in job("experiment=horizon engine=virtual repeats=3").cases}
    to_the_end = read_rows(reference_dir() / "horizon_local.jsonl")
    assert {row.run_id for row in to_the_end} <= horizon
    assert all(row.case.steps >= 10_000 and len(row.curve["step"]) == 50 for row in to_the_end)


@pytest.mark.slow
@pytest.mark.parametrize("preset", choices("preset"))
@pytest.mark.parametrize("experiment", choices("experiment"))
def test_every_experiment_composes_with_every_preset(experiment, preset, tmp_path, monkeypatch):
    with_files(tmp_path, monkeypatch)
    if compose({"experiment": experiment})["cluster"]["name"] != "local":  # simulated, where a preset has no effect
        return
    if preset == "paper" and experiment in NOT_OF_AUTHORS:
        with pytest.raises(ConfigError, match="trains as long as the authors did, which workload="):
            job(f"experiment={experiment} preset={preset}")
        return
    made = job(f"experiment={experiment} preset={preset}")
    assert made.preset == preset
    assert all(case.experiment == experiment for case in made.cases)
    plans = {
        (made.cluster.name, case.world_size, case.model, case.scheme, case.memory, str(case.plan_options)): case
        for case in made.cases
    }
    # A preset changes how long a case trains, which the check of its plan is quick to see, and seldom the plan itself.
    check_plans([case for what, case in plans.items() if what not in PLANNED], made.cluster)
    for case in made.cases:
        _check_warmup(case)
    PLANNED.update(plans)


@pytest.mark.slow
@pytest.mark.parametrize("experiment", choices("experiment"))
def test_every_experiment_that_can_be_simulated_is_simulated(experiment):
    if "simulated" not in compose({"experiment": experiment})["experiment"]:
        with pytest.raises(ConfigError, match="about what real gradients do"):
            job(f"experiment={experiment} cluster=16gpu")
        return
    made = job(f"experiment={experiment} cluster=16gpu")
    assert {case.calibration for case in made.cases} == {target.calibration for target in made.targets}
    assert simulate_case(made.cases[0])[1].iteration_s > 0


def test_steps_that_profile_are_not_timed():
    made = job("scheme=ssfusion_o warmup_steps=5")
    with pytest.raises(ConfigError, match=r"profiles for 5 steps .* use warmup_steps=8"):
        check_plans(made.cases, made.cluster)
    dense = job("scheme=ddp warmup_steps=5")
    check_plans(dense.cases, dense.cluster)


def test_of_many_densities_the_least_and_the_most_dense_are_planned(monkeypatch):
    planned = []

    def noted(scheme, *rest):
        planned.append((scheme, rest[-1].get("density")))
        return make_plan(scheme, *rest)

    monkeypatch.setattr(plans, "make_plan", noted)
    made = job("scheme=ddp,per_tensor,fused_all density=0.1,0.01,0.5,0.001 seed=0,1")
    check_plans(made.cases, made.cluster)
    assert planned == [
        ("ddp", None),
        ("per_tensor", 0.5),
        ("per_tensor", 0.001),
        ("fused_all", 0.5),
        ("fused_all", 0.001),
    ]


@pytest.mark.parametrize("scheme", schemes.names())
def test_every_scheme_composes(scheme):
    assert all(case.scheme == scheme for case in job(f"scheme={scheme}").cases)


def test_the_throughput_experiment_covers_every_scheme():
    cases = job("experiment=throughput cluster=local preset=smoke").cases
    assert {(case.model, case.scheme) for case in cases} == {
        (model, scheme) for model in ("resnet_tiny", "lstm_tiny", "gpt2_tiny") for scheme in EVERY_STEP
    }


def test_hierarchical_sums_inside_the_nodes_that_the_cluster_has():
    def nodes_of(text):
        (case,) = job(f"scheme=hierarchical {text}").cases
        (simulated,) = resolve_simulations(f"scheme=hierarchical model=resnet50 {text}".split())
        assert simulated.scheme_options == case.scheme_options
        return case.scheme_options.get("ranks_per_node")

    assert nodes_of("cluster=64gpu workload=resnet50_imagenet") == 4
    assert nodes_of("cluster=64gpu workload=resnet50_imagenet scheme.ranks_per_node=2") == 2
    planned = resolve_plan(["scheme=hierarchical", "model=resnet50", "cluster=16gpu"])
    assert planned.parts.plan_options == {"ranks_per_node": 4}
    (alone,) = job("scheme=hierarchical cluster=local world_size=2").cases
    assert alone.scheme_options == {}


def test_slurm_is_asked_for_the_nodes_of_the_cluster_whatever_is_here():
    found = job("cluster=16gpu cluster.nodes=2 cluster.device=cpu engine=slurm scheme=ddp,oktopk preset=short")
    assert found.engine == "slurm"
    here = job("scheme=ddp,oktopk preset=short")
    for case, alike in zip(found.cases, here.cases, strict=True):
        assert (str(case.cluster), case.world_size, case.device) == ("16gpu(device=cpu,nodes=2)", 8, "cpu")
        assert (case.steps, case.calibration) == (alike.steps, "")
    assert found.targets == ()


@pytest.mark.parametrize(
    ("words", "dataset", "batch"),
    [
        ("model=bert_large", "squad", 4),
        ("model=resnet152", "imagenet", 32),
        ("model=bert_large dataset=synthetic batch_size=7", "synthetic", 7),
        ("model=gpt2_large workload=gpt2_large_2026", "synthetic", 1),
    ],
)
def test_a_simulated_model_has_its_own_batch_and_data_as_simulate_has(words, dataset, batch):
    (case,) = job(f"cluster=64gpu scheme=ddp {words}").cases
    assert (case.dataset.partition("(")[0], case.batch_size) == (dataset, batch)
    (other,) = resolve_simulations(f"cluster=64gpu scheme=ddp model={case.model} batch_size={batch}".split())
    assert simulate_case(case)[1].iteration_s == pytest.approx(simulate_case(other)[1].iteration_s)


@pytest.mark.parametrize(
    ("words", "dataset", "batch", "optimizer"),
    [
        ("model=gpt2_tiny", "stdlib_text", 8, "adamw"),
        ("engine=virtual cluster=64gpu engine.ranks=4 model=gpt2_tiny dataset=stdlib_text", "stdlib_text", 8, "adamw"),
        ("model=bert_large_pretraining dataset=synthetic", "synthetic", 8, "adamw"),
        ("model=resnet_tiny", "digits", 32, "sgd"),
    ],
)
def test_a_trained_model_has_its_own_batch_data_and_optimizer(words, dataset, batch, optimizer):
    (case,) = job(f"scheme=ddp {words}").cases
    assert (case.dataset.partition("(")[0], case.batch_size, case.optimizer) == (dataset, batch, optimizer)
