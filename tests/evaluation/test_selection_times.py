"""What times of selecting say about MiCRO's table of costs: orders, which made-up times can turn."""

import pytest

from experiments.common.evaluation.selection_times import EXPERIMENT, cells, faster_by_threshold, sorting_grows
from ssfx.core.case import Case
from ssfx.core.origin import Origin
from ssfx.core.rows import Row

WORDS = {
    **{f"micro.table1.{key}.selection": "very high" for key in ("topk", "cltk")},
    **{f"micro.table1.{key}.selection": "very low" for key in ("hardthr", "sidco")},
    "micro.table1.micro.selection": "near-zero",
    **{f"micro.table1.{key}.overhead": "no" for key in ("topk", "cltk", "hardthr", "micro")},
    "micro.table1.sidco.overhead": "very high",
}
SECONDS = {"topk": (50.0, 50.0), "hard_threshold": (10.0, 10.0), "sidco": (10.0, 30.0), "micro": (1.0, 1.01)}


def rows(numel: int = 1000, density: float = 0.01, **changed: tuple[float, float]) -> list[Row]:
    """Return a row for each sparsifier, of seconds of selecting and of everything."""
    made = []
    for name, (select, whole) in {**SECONDS, **changed}.items():
        case = Case(
            experiment=EXPERIMENT,
            model=f"vector(numel={numel})",
            dataset="laplace",
            scheme="micro" if name == "micro" else "per_tensor",
            cluster="local",
            world_size=1,
            batch_size=1,
            compressor="topk" if name == "micro" else name,
            density=density,
            steps=3,
            warmup_steps=1,
        )
        samples = {"compress_s": [0.98 * select, select, 1.02 * select], "sparsify_s": [whole] * 3}
        origin = Origin("measured", note="made up")
        made.append(Row(case.run_id, case, {"compress_s": select, "sparsify_s": whole}, origin, {}, samples))
    return made


def outcomes(given: list[Row]) -> dict[str, str]:
    """Return the outcome of each claim."""
    found = {**cells(given, WORDS), **faster_by_threshold(given)}
    return {one.claim: one.outcome for several in found.values() for one in several}


def test_orders_as_in_the_paper_agree():
    assert set(outcomes(rows()).values()) == {"agrees"}
    assert outcomes([]) == {}


@pytest.mark.parametrize(
    ("changed", "refuted"),
    [
        ({"topk": (11.0, 11.0)}, {"topk.selection", "cltk.selection", "hardthr.selection", "sidco.selection"}),
        ({"micro": (9.0, 9.01)}, {"hardthr.selection", "sidco.selection", "micro.selection"}),
        ({"sidco": (10.0, 15.0)}, {"sidco.overhead"}),
        ({"micro": (1.0, 1.5)}, {"micro.overhead"}),
    ],
)
def test_other_times_refute_what_rests_on_them(changed: dict[str, tuple[float, float]], refuted: set[str]):
    found = outcomes(rows(**changed))
    disagree = {name for name, outcome in found.items() if outcome == "disagrees" and ".table1." in name}
    assert disagree == {f"micro.table1.{name}" for name in refuted}


def test_what_takes_longer_than_calls_differ_is_no_overhead_of_zero():
    assert outcomes(rows(micro=(1.0, 1.05)))["micro.fig6.zero"] == "disagrees"


@pytest.mark.parametrize(
    ("seconds", "outcome"), [((1, 2, 20, 40), "agrees"), ((1, 1, 20, 20), "partly"), ((2, 1, 2, 1), "disagrees")]
)
def test_sorting_grows_with_elements_and_with_what_is_selected(seconds: tuple[float, ...], outcome: str):
    places = [(n, density) for n in (1000, 20_000) for density in (0.01, 0.1)]
    given = [rows(n, at, topk=(one, one))[0] for (n, at), one in zip(places, seconds, strict=True)]
    (verdict,) = sorting_grows(given)
    assert verdict.outcome == outcome
