import pytest

from experiments.common.validation.scores import Pair, inversions, kendall_tau, score


def panel(*values, name="m"):
    return [Pair(name, f"s{i}", predicted, actual) for i, (predicted, actual) in enumerate(values)]


def test_errors_are_relative_to_what_really_happened():
    found = score(panel((1.1, 1.0), (1.9, 2.0), (4.0, 4.0)))
    assert found.mean == pytest.approx(0.05)
    assert found.median == pytest.approx(0.05)
    assert found.maximum == pytest.approx(0.1)
    assert found.bias == pytest.approx(0.05 / 3)
    assert found.worst.label == "s0"
    assert found.tau == 1
    assert found.inversions == ()


def test_inverted_pairs_are_listed_with_what_they_cost():
    pairs = panel((1.0, 1.2), (1.1, 1.0), (3.0, 2.0), (2.9, 2.04))
    found = score(pairs)
    # s2 and s3 are inverted, too, but nearly alike.
    assert [(one.faster, one.slower) for one in found.inversions] == [("s1", "s0")]
    assert found.inversions[0].gap == pytest.approx(0.2)
    assert found.inversions[0].predicted_gap == pytest.approx(1.0 / 1.1 - 1)
    assert found.tau == pytest.approx(1 - 2 * 2 / 6)


def test_panels_are_ordered_among_themselves_only():
    one, other = panel((1.0, 1.0), (2.0, 2.0), name="a"), panel((9.0, 0.5), (10.0, 0.6), name="b")
    found = score([*one, *other])
    assert found.inversions == ()
    assert found.tau == 1


def test_tau_needs_two_different_values():
    assert kendall_tau(panel((1.0, 1.0))) is None
    assert kendall_tau(panel((1.0, 1.0), (1.0, 2.0))) is None
    assert kendall_tau(panel((2.0, 1.0), (1.0, 2.0))) == -1
    assert inversions(panel((2.0, 1.0), (2.0, 3.0))) == []


def test_a_bias_shows_where_errors_cancel():
    found = score(panel((1.2, 1.0), (0.8, 1.0)))
    assert found.bias == pytest.approx(0)
    assert found.mean == pytest.approx(0.2)
    assert score(panel((1.0, 1.0))).tau is None


def test_orderings_count_pairs_that_really_differ():
    found = score(panel((1.0, 1.0), (2.0, 1.02), (0.5, 2.0), (0.5, 3.0)))
    # Of six pairs the first two are too close; the two slowest are predicted alike, which is no right order.
    assert (found.ordered, found.orderings) == (0, 5)
    assert score(panel((1.0, 1.0), (2.0, 2.0))).ordered == 1
