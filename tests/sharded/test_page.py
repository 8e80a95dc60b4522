"""The script of docs/sharded.md, as a user would run it, and the same without its two lines of ssfx."""

import pytest
import torch
from docs.markdown import ROOT, python_blocks
from sharded import work
from sharded.conftest import Run

SCRIPT = python_blocks(ROOT / "docs/sharded.md")[0]
WITHOUT = "".join(line for line in SCRIPT.splitlines(keepends=True) if "ssfx" not in line)


@pytest.mark.nightly
def test_the_script_goes_to_ssfx_by_two_lines_and_back(ranks: Run) -> None:
    assert len(SCRIPT.splitlines()) == len(WITHOUT.splitlines()) + 2
    dense = SCRIPT.replace('scheme="topk", density=0.01', 'scheme="ddp"')
    assert dense != SCRIPT
    native, exact, sparse = (ranks(work.script, 4, source) for source in (WITHOUT, dense, SCRIPT))
    for (theirs, _), (mine, equal), (other, still_equal) in zip(native, exact, sparse, strict=True):
        assert equal
        assert still_equal
        assert all(torch.equal(a, b) for a, b in zip(theirs, mine, strict=True))
        assert not all(torch.equal(a, b) for a, b in zip(theirs, other, strict=True))
