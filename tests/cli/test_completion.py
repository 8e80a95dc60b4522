"""What Tab offers."""

import pytest

from ssfx.cli.overrides import complete
from ssfx.config.groups import choices


@pytest.mark.parametrize(
    ("given", "incomplete", "expected"),
    [
        ([], "den", ["density="]),
        ([], "wa", ["wandb=", "wandb_project=", "wandb_tags=", "warmup_steps="]),
        ([], "tra", ["trace=false", "trace=true"]),
        ([], "preset=s", ["preset=short", "preset=smoke"]),
        ([], "preset=full,s", ["preset=full,short", "preset=full,smoke"]),
        ([], "precision=", ["precision=fp32", "precision=tf32", "precision=bf16", "precision=fp16"]),
        ([], "density=", []),
        ([], "nonsense", []),
        ([], "nonsense.x", []),
        (["scheme=ddp"], "scheme.b", ["scheme.bucket_cap_bytes="]),
        (["scheme", "=", "ddp"], "scheme.b", ["scheme.bucket_cap_bytes="]),
        (["preset", "="], "s", ["short", "smoke"]),
        (["preset"], "", ["full", "long", "mini", "paper", "short", "smoke"]),
        (["scheme=ddp", "cluster", "="], "64", ["64gpu", "64gpu_40gb"]),
        (
            [],
            "cluster.in",
            [f"cluster.{a}.{b}=" for a in ("inter", "intra") for b in ("efficiency", "gbps", "latency_s", "link")],
        ),
    ],
)
def test_completions(given, incomplete, expected):
    assert complete(given, incomplete) == expected


def test_a_key_that_is_the_only_match_offers_its_values():
    assert complete([], "scheme") == [f"scheme={name}" for name in choices("scheme")]


def test_only_options_of_the_chosen_component_are_offered():
    ddp, all_schemes = complete(["scheme=ddp"], "scheme."), complete([], "scheme.")
    assert set(ddp) < set(all_schemes)
