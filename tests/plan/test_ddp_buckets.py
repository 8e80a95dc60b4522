"""DDP buckets are PyTorch's own, on random inputs and on real models."""

import random

import pytest
import torch
import torch.distributed as dist
from plan.instances import affine_costs, make_profile, model_sizes

from ssfx.schemes.make_plan import make_plan
from ssfx.schemes.search.byte_groups import BUCKET_CAP_BYTES, FIRST_BUCKET_BYTES


def ours(numel: list[int], dtypes: list[str], **options: int) -> list[list[int]]:
    profile = make_profile(numel, [1e-3] * len(numel), dtypes)
    plan = make_plan("ddp", profile, affine_costs(), options)
    return [[plan.order[name] for lane in bucket.lanes for name in lane.tensors] for bucket in plan.buckets]


def torchs(numel: list[int], dtypes: list[str], first: int, cap: int) -> list[list[int]]:
    tensors = [torch.empty(n, dtype=getattr(torch, dtype)) for n, dtype in zip(numel, dtypes, strict=True)]
    buckets, _ = dist._compute_bucket_assignment_by_size(tensors, [first, cap], [False] * len(tensors))
    return buckets


def test_equals_pytorchs_assignment() -> None:
    torch.set_num_threads(1)
    rng = random.Random(1)
    for _ in range(200):
        numel = [rng.choice([1, 10, rng.randint(1, 3000)]) for _ in range(rng.randint(1, 60))]
        dtypes = [rng.choice(["float32", "float32", "float16"]) for _ in numel]
        first, cap = rng.randint(1, 4000), rng.randint(1, 30_000)
        found = ours(numel, dtypes, first_bucket_bytes=first, bucket_cap_bytes=cap)
        assert sorted(found) == sorted(torchs(numel, dtypes, first, cap))


@pytest.mark.parametrize(
    ("model", "num_tensors", "num_buckets"),
    [
        ("resnet50", 161, 5),
        ("resnet152", 467, 10),
        ("vgg19", 38, 6),
        ("bert_large_qa", 391, 37),
        ("gpt2_large_lm", 436, 109),
    ],
)
def test_bucket_counts_of_real_models(model: str, num_tensors: int, num_buckets: int) -> None:
    numel = model_sizes(model)
    assert len(numel) == num_tensors
    found = ours(numel, ["float32"] * len(numel))
    assert len(found) == num_buckets
    if model == "resnet50":
        assert [len(bucket) for bucket in found] == [2, 15, 12, 51, 81]


@pytest.mark.slow
def test_recorded_sizes_are_those_of_the_models() -> None:
    import torchvision

    with torch.device("meta"):
        for name in ("resnet50", "resnet152", "vgg19"):
            model = getattr(torchvision.models, name)()
            assert [p.numel() for p in reversed(list(model.parameters()))] == model_sizes(name)


def test_defaults_are_pytorchs() -> None:
    assert dist._DEFAULT_FIRST_BUCKET_BYTES == FIRST_BUCKET_BYTES
    assert BUCKET_CAP_BYTES == 25 * 1024 * 1024
