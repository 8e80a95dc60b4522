"""Tables of quality beside dense runs of the same seeds: docs/sharded.md with bytes, docs/local_updates.md."""

from dataclasses import replace
from math import exp

from figures.synthetic import row

from experiments.common.pages.recorded_runs import rounds_block, sharded_quality_block


def run(experiment, scheme, seed, perplexity, sent, **case):
    made = row(model="lstm_tiny", scheme=scheme, experiment=experiment, repeat=seed)
    metrics = {**made.metrics, "perplexity": perplexity, "sent_bytes": sent}
    changed = replace(made.case, **case)
    return replace(made, run_id=changed.run_id, case=changed, metrics=metrics)


def test_each_seed_is_beside_the_dense_run_of_the_same_seed():
    eight = {"compressor": "fp8", "weights": "fp8"}
    rows = [
        run("long_quality", "ddp", 0, exp(4), 400.0),
        run("long_quality", "ddp", 1, exp(5), 400.0),
        run("long_quality", "ddp", 0, exp(3), 900.0, world_size=64),  # not on as many ranks
        run("sharded_quality", "fused_all", 1, exp(5.05), 100.0, **eight),
        run("sharded_quality", "fused_all", 0, exp(3.98), 100.0, **eight),
        run("sharded_quality", "fused_all", 2, exp(3.98), 100.0, **eight),  # no dense run of this seed
        run("sharded_quality", "ddp", 0, exp(4), 600.0),
    ]
    (line,) = sharded_quality_block(rows).splitlines()[2:]
    assert line.startswith("| lstm_tiny | `fp8` | fp8 | 2 | ")
    assert line.endswith(" | -0.50 %, +1.00 % | 0.25 |")


def test_rounds_and_exchanges_of_every_step_stand_beside_the_same_dense_run():
    rows = [
        run("local_updates", "ddp", 0, exp(4), 1.0, density=None),
        run("local_updates", "local_sgd", 0, exp(4.1), 1.0, density=None, scheme_options={"every": 128}),
        run("local_updates", "local_sgd", 0, exp(4.04), 1.0, density=None, scheme_options={"every": 8}),
        run("local_updates", "powersgd", 0, exp(3.96), 1.0, density=None, compressor="powersgd(rank=32)"),
        run("local_updates", "local_sgd", 1, exp(3.0), 1.0, density=None),  # no dense run of this seed
    ]
    found = [line.split(" | ")[2:5] + line.split(" | ")[-1:] for line in rounds_block(rows).splitlines()[2:]]
    assert found == [
        ["`local_sgd`", "8", "1", "+1.00 % |"],
        ["`local_sgd`", "128", "1", "+2.50 % |"],
        ["`powersgd(rank=32)`", "1", "1", "-1.00 % |"],
    ]


def test_without_rows_the_command_is_named():
    assert "ssfx run experiment=local_updates" in rounds_block([])
    assert "ssfx run experiment=sharded_quality" in sharded_quality_block([])
