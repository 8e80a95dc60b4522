"""Two real ranks over gloo: what only shows with more than one."""

import random
from pathlib import Path

import pytest
import torch
from plan.options import usual
from runtime.pool import Pool
from workloads import work

from ssfx.schemes import schemes

pytestmark = pytest.mark.slow


def test_running_statistics_are_averaged(pair: Pool) -> None:
    assert pair.run(work.average, 2) == [([0.5, 0.5], [0.0, 0.0]), ([0.5, 0.5], [1.0, 1.0])]


def test_ranks_agree_on_the_newest_whole_checkpoint(pair: Pool, tmp_path: Path) -> None:
    first, second = pair.run(work.save_and_load, 2, str(tmp_path))
    assert first[:2] == (2, 20)
    assert second[:2] == (2, 21)
    assert first[2] == second[2] == ("checkpoint step-3 skipped: the checksum of rank1.pt does not match",)


@pytest.mark.parametrize(
    "changes",
    [
        {"scheme": "ddp", "optimizer": "adamw", "lr": 1e-3, "model": "lstm_tiny", "dataset": "stdlib_text(seq_len=8)"},
        {"scheme": "per_tensor", "compressor": "topk", "density": 0.05, "lr": 0.01},
        {"scheme": "streaming_diloco", "scheme_options": {"every": 4, "fragments": 2, "delay": 1}, "lr": 0.01},
        {"scheme": "local_sgd", "scheme_options": {"every": 4, "ranks_per_group": 2}, "lr": 0.01},
    ],
    ids=["ddp", "topk", "rounds", "groups"],
)
def test_a_case_runs_and_resumes_on_two_ranks(pair: Pool, tmp_path: Path, changes: dict[str, object]) -> None:
    changes = {**changes, "steps": 6, "checkpoint_every": 2, "evaluate": True}
    whole = pair.run(work.run, 2, str(tmp_path / "whole"), changes, None)
    assert pair.run(work.run, 2, str(tmp_path / "cut"), changes, 3) == [None, None]
    resumed = pair.run(work.run, 2, str(tmp_path / "cut"), changes, None)

    assert whole[0]["result"].metrics == resumed[0]["result"].metrics
    quality = {"perplexity", "perplexity_per_word"} if "model" in changes else {"top1", "top5"}
    assert set(whole[0]["result"].metrics) == {"skipped_steps", *quality}
    assert whole[0]["result"].metrics == whole[1]["result"].metrics  # each rank scored a half
    assert whole[0]["losses"] != whole[1]["losses"]  # each rank has its own samples
    for rank in range(2):
        assert resumed[rank]["result"].first_step == 2
        assert resumed[rank]["losses"] == {step: whole[rank]["losses"][step] for step in range(2, 6)}
        assert resumed[rank]["plan"] == whole[0]["plan"]
        one, two = (
            torch.load(tmp_path / folder / "step-6" / f"rank{rank}.pt", weights_only=True)
            for folder in ("whole", "cut")
        )
        for part in ("model", "optimizer", "sync", "rng", "counters"):
            _assert_same(one[part], two[part], part)


@pytest.mark.parametrize("scheme", schemes.names())
def test_every_scheme_resumes_exactly_within_a_schedule(pair: Pool, tmp_path: Path, scheme: str) -> None:
    steps = 9
    cut = random.Random(scheme).randint(steps // 2 + 1, steps - 1)  # the only checkpoint, with the plan in use
    options = usual(scheme, 0.05)
    changes: dict[str, object] = {
        "compressor": options.pop("compressor", None),
        "density": options.pop("density", None),
        "scheme": scheme,
        "model": "vgg_mini",
        "steps": steps,
        "checkpoint_every": cut,
        "lr": 0.02,
        "schedule": "step",
        "milestones": (0.5, 0.8),
        "lr_warmup": 0.3,
        "scale_lr_by_ranks": True,
        "scheme_options": options | ({"profile_iters": 2} if schemes[scheme].profiled else {}),
        "evaluate": True,
        "evaluate_every": 3,
    }
    whole = pair.run(work.run, 2, str(tmp_path), changes, None)
    resumed = pair.run(work.run, 2, str(tmp_path), changes, None)
    for one, two in zip(whole, resumed, strict=True):
        assert two["result"].first_step == cut
        assert two["plan"] == one["plan"]
        assert two["losses"] == {step: one["losses"][step] for step in range(cut, steps)}
        assert two["points"] == {step: one["points"][step] for step in range(cut, steps)}
        assert two["weights"] == one["weights"]
        assert two["result"].metrics == one["result"].metrics


def _assert_same(one: object, two: object, where: str) -> None:
    if isinstance(one, torch.Tensor):
        assert isinstance(two, torch.Tensor)
        assert torch.equal(one, two), where
    elif isinstance(one, dict):
        assert isinstance(two, dict)
        assert one.keys() == two.keys(), where
        for key in one:
            if key not in ("profile", "observed"):  # measured times
                _assert_same(one[key], two[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert isinstance(two, list | tuple)
        for number, (a, b) in enumerate(zip(one, two, strict=True)):
            _assert_same(a, b, f"{where}[{number}]")
    else:
        assert one == two, where
