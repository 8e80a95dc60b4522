"""The numbers of docs/schemes.md on sparse messages with Adam are those of the committed long runs."""

import re

from docs.markdown import ROOT

from ssfx.core.paths import reference_dir
from ssfx.lab.results.store import read_rows


def test_perplexities_are_those_of_the_rows() -> None:
    text = " ".join((ROOT / "docs" / "schemes.md").read_text().split())
    sentence = text[text.index("Perplexity at density 0.01") : text.index("Then the second moment")]
    said = re.findall(r"(residual|`memory=momentum` \(DeMo\)|`decay=0.9`|dense|`dense_steps=400`) (\d+)", sentence)
    found = {}
    for row in read_rows(reference_dir() / "long_quality_local.jsonl"):
        case = row.case
        at = case.model, case.seed, case.optimizer, case.world_size, case.clip_norm
        if at != ("gpt2_small_wikitext2", 0, "adamw", 4, None):
            continue
        if (case.scheme, case.compressor, case.density) not in (("ddp", None, None), ("per_tensor", "topk", 0.01)):
            continue
        options = "`dense_steps=400`" if case.scheme_options else ""
        names = {None: "dense", "residual": "residual", "momentum": "`memory=momentum` (DeMo)"}
        found[options or names.get(case.memory, "`decay=0.9`")] = f"{row.metrics['perplexity']:.0f}"
    assert dict(said) == found
    assert len(found) == 5


def test_muons_perplexities_are_those_of_the_rows() -> None:
    text = " ".join((ROOT / "docs" / "schemes.md").read_text().split())
    said = re.search(r"`optimizer=muon`.*?dense (\d+\.\d), four bits (\d+\.\d), rank 32 (\d+\.\d)", text)
    rows = read_rows(reference_dir() / "long_quality_local.jsonl")
    found = {row.case.compressor: f"{row.metrics['perplexity']:.1f}" for row in rows if row.case.optimizer == "muon"}
    assert said is not None
    assert found == dict(
        zip((None, "qsgd(bits=4,bucket=48,norm=max)", "powersgd(rank=32)"), said.groups(), strict=True)
    )
