"""Exchanges of every step and rounds by bandwidth: what each is multiplied by, and by whose evidence."""

from experiments.common.evaluation import rounds_by_rate
from experiments.edition2026.figures import world_lines


def test_a_step_counts_with_what_is_known_of_its_quality(monkeypatch):
    monkeypatch.setattr(rounds_by_rate, "RATES_GBPS", (1.0,))
    found = {(one.world[:7], one.method): one for one in rounds_by_rate._places()}
    assert len(found) == 3 * (2 + len(rounds_by_rate.ROUNDS))
    dense, eight, four, far = (
        found[place]
        for place in (
            ("8 nodes", "16 bits every step"),
            ("8 nodes", "diloco every 32"),
            ("4 sites", "diloco every 32"),
            ("8 nodes", "diloco every 500"),
        )
    )
    assert (dense.evidence, dense.low, dense.high) == ("dense", 1.0, 1.0)
    assert eight.evidence == four.evidence == "published"
    assert eight.low > four.high > four.low > 1.0  # more replicas need more tokens, as published
    assert (far.evidence, far.low) == ("none", None)  # points of 30 steps say nothing about 500
    assert far.times(far.low) == far.step_s / far.alone_s < eight.times(eight.low) < dense.times(1.0)
    assert world_lines([eight])[0]["times_high"] == round(eight.step_s / eight.alone_s * eight.high, 3)
