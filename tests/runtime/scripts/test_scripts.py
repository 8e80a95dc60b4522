"""Users' scripts: with every kind of scheme they end where torch DDP does at density 1, and lose nothing below it."""

import pytest
from runtime.pool import Pool
from runtime.scripts import refused
from runtime.scripts import work_scripts as work
from runtime.scripts.harness import SCRIPTS, Options

EXACT: dict[str, Options] = {
    "ddp": {"scheme": "ddp"},
    "cltk": {"scheme": "cltk", "density": 1.0},
    "topk": {"scheme": "topk", "density": 1.0},
    "powersgd": {"scheme": "powersgd", "compressor": "powersgd(rank=32,min_compression_rate=0)"},
}
"""A dense scheme, a selecting all-reduce, a gathered selection, and factors of full rank."""
LOSSY: dict[str, Options] = {
    "cltk": {"scheme": "cltk", "density": 0.1},
    "topk": {"scheme": "topk", "density": 0.1},
    "powersgd": {"scheme": "powersgd", "compressor": "powersgd(rank=1,min_compression_rate=0)"},
}
ON_THREE = ("gan", "sam", "gradual_unfreezing", "unequal_batches", "exchanged_accumulation")


@pytest.mark.parametrize("scheme", EXACT)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_leaves_nothing_out_ends_where_ddp_does(pool: Pool, name: str, scheme: str) -> None:
    for report in pool.run(work.with_ssfx, 2, name, EXACT[scheme], True):
        assert report["finite"]
        assert report["agree"]
        assert report["violation"] < 2e-5
        assert report["used"] > 0
        if scheme == "ddp":
            assert report["same bits"]
        else:
            assert report["distance"] < 2e-5


@pytest.mark.parametrize("scheme", LOSSY)
@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_script_applies_and_keeps_is_what_it_stepped_with(pool: Pool, name: str, scheme: str) -> None:
    for report in pool.run(work.with_ssfx, 2, name, LOSSY[scheme], False):
        assert report["finite"]
        assert report["agree"]
        assert report["violation"] < 2e-5
        assert report["kept"] > 0


@pytest.mark.parametrize("name", ON_THREE)
def test_scripts_on_three_ranks(pool: Pool, name: str) -> None:
    for report in pool.run(work.with_ssfx, 3, name, EXACT["topk"], True):
        assert report["agree"]
        assert report["distance"] < 2e-5
    for report in pool.run(work.with_ssfx, 3, name, LOSSY["topk"], False):
        assert report["agree"]
        assert report["violation"] < 2e-5
        assert report["kept"] > 0


@pytest.mark.parametrize("scheme", ["ddp", "cltk", "topk"])
@pytest.mark.parametrize("name", refused.FOLLOWS)
def test_what_is_tied_or_hooked_after_the_exchange_began_follows_ddp(pool: Pool, name: str, scheme: str) -> None:
    for distance, agree in pool.run(refused.follows, 2, name, EXACT[scheme]):
        assert distance < 2e-5
        assert agree


@pytest.mark.parametrize("scheme", ["cltk", "powersgd"])
@pytest.mark.parametrize("name", refused.REFUSED)
def test_a_script_that_cannot_be_right_is_refused_in_one_line(pool: Pool, name: str, scheme: str) -> None:
    for text in pool.run(refused.said, 2, name, LOSSY[scheme]):
        assert "\n" not in text
        for part in refused.REFUSED[name][1]:
            assert part in text
