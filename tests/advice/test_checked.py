"""What an answer says of where steps like it were checked."""

import pytest

from experiments.common.figures.every_claim import claims_by_id
from experiments.common.validation import published_acpsgd, published_mergecomp, published_s2reducer
from ssfx.advice.checked import CHECKED, network_of, where_checked
from ssfx.core.component_file import component_file
from ssfx.perf_model.cluster_file import cluster_of, with_options

RANGES = {one.network: one for one in CHECKED}


def cluster(name, **options):
    given = {key.replace("__", "."): value for key, value in options.items()}
    return cluster_of(with_options(component_file("cluster", name), given), None, "auto")


@pytest.mark.parametrize(
    "name", [*published_acpsgd.NETWORKS.values(), *published_mergecomp.NETWORKS.values(), published_s2reducer.CLUSTER]
)
def test_every_cluster_that_validation_scores_is_in_the_range(name):
    here = cluster(name)
    found = RANGES[network_of(here)]
    assert found.least <= here.world_size <= found.most
    assert "never" not in where_checked(here)


def test_the_range_is_that_of_the_claims():
    few, many = claims_by_id()["acpsgd.fig12.ssgd"].conditions["gpus"]
    assert (RANGES["GPUs over TCP"].least, RANGES["GPUs over TCP"].most) == (few, many)
    assert RANGES["GPUs over RDMA"].most == cluster("acpsgd_100gbib").world_size


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("acpsgd_10gbe", {}, "GPUs over TCP were checked on 8 to 64 ranks at 1 to 10 Gbit/s (ACP-SGD, S2 Reducer)"),
        ("acpsgd_10gbe", {"nodes": 32}, "(ACP-SGD, S2 Reducer), never on 128 ranks"),
        ("box", {}, "never at 25 Gbit/s"),
        (
            "64gpu",
            {},
            "GPUs over RDMA were checked on 32 ranks at 100 Gbit/s (ACP-SGD Fig. 13), never on 64 ranks or at",
        ),
        ("polaris", {}, "steps of GPUs over measured links were never checked"),
    ],
)
def test_outside_of_it_the_answer_says_never(name, options, text):
    assert text in where_checked(cluster(name, **options))
