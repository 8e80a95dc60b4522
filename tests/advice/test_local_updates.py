"""Slow links: one line names what others do there, and that it is neither run nor priced here."""

import pytest

from ssfx.advice.screen import local_updates
from ssfx.config.advice_question import resolve_setting


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("cluster=acpsgd_10gbe",), True),
        (("cluster=64gpu",), False),
        (("cluster=64gpu", "cluster.inter.gbps=40"), True),  # a card for four GPUs
        (("cluster=64gpu", "cluster.nodes=1"), False),
    ],
)
def test_it_is_named_at_or_below_ten_gbit_a_gpu(words: tuple[str, ...], named: bool) -> None:
    said = local_updates(resolve_setting(["model=bert_large", *words]).cluster)
    assert bool(said) == named
    if named:
        assert all(word in said for word in ("DiLoCo", "SparseLoCo", "MuLoCo", "arXiv", "neither runs nor prices"))
