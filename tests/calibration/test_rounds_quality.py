"""Records of rounds: each beside dense training of the same data, ranks, batch, steps and seed; the file has them."""

import json
from dataclasses import asdict, replace

from ssfx.advice.rounds import FILE, RoundsRecord
from ssfx.core.case import Case
from ssfx.core.origin import Origin
from ssfx.core.paths import data_dir, reference_dir
from ssfx.core.rows import Row
from ssfx.lab.calibration.rounds_quality import SOURCE, records
from ssfx.lab.results.store import read_rows


def row(scheme, perplexity, seed=0, experiment="local_updates", **options):
    case = Case(experiment, "gpt2_small_wikitext2", "wikitext2", scheme, "local", 4, 64, seed=seed)
    case = replace(case, optimizer="adamw", steps=512, scheme_options=options, target_metric="perplexity")
    # Halfway every run is at twice its end; the level that it never comes to takes at least the rest of the run.
    curve = {"step": [256.0, 512.0], "perplexity": [2 * perplexity, perplexity]}
    return Row(case.run_id, case, {"perplexity": perplexity}, Origin("simulated"), curve=curve)


def test_a_record_is_over_dense_training_of_the_same_seed():
    rows = [
        *(row("ddp", 100.0), row("ddp", 200.0, seed=1), row("powersgd", 90.0)),
        *(row("local_sgd", 110.0, every=32), row("local_sgd", 210.0, seed=1, every=32), row("local_sgd", 5.0, seed=2)),
        row("streaming_diloco", 95.0, every=32, fragments=2, outer_lr=1.0),
    ]
    found = records([*rows, row("diloco", 1.0, experiment="other")])
    trained = (4, 1024, "transformer", "adamw", "gpt2_small_wikitext2")
    assert found == [
        RoundsRecord("local_sgd", "", 32, *trained, (10.0, 5.0), (1.0, 1.0), True),
        RoundsRecord(
            "streaming_diloco", "streaming_diloco(fragments=2,outer_lr=1.0)", 32, *trained, (-5.0,), (0.987,), False
        ),
    ]


def test_the_file_is_that_of_the_rows():
    source = reference_dir() / SOURCE
    assert json.loads((data_dir() / FILE).read_text()) == json.loads(
        json.dumps([asdict(one) for one in records(read_rows(source))])
    )
