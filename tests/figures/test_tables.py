"""Tables drawn as pictures, and that the images keep the colours of what is drawn."""

import csv

import pytest
from PIL import Image

from experiments.common.figures.discovery import discover
from experiments.common.figures.figure import Figure
from experiments.common.figures.style import OUTCOME_COLOURS, save, style
from experiments.common.figures.tables import draw_table
from ssfx.core.paths import reference_dir
from ssfx.lab.results.comparisons import SCHEME_COLOURS
from ssfx.lab.results.store import Store

ROWS = [
    {"model": "ResNet-152", "tensors": 467, "share": 72.376, "paper": 72.38, "verdict": "agrees", "claim": "x"},
    {"model": "BERT-large", "tensors": 391, "share": 62.66, "paper": "", "verdict": "not\nattempted", "claim": "y"},
]


def rgb(colour):
    return tuple(bytes.fromhex(colour.removeprefix("#")))


def colours(path):
    with Image.open(path) as image:
        assert image.mode in ("P", "RGB", "RGBA")
        flat = image.convert("RGB")
        return {colour for _, colour in flat.getcolors(flat.width * flat.height)}, flat.info["dpi"][0]


def drawn(name, title, columns, lines, out):
    return Figure(name, title, lambda *_: draw_table(title, columns, lines)).draw([], out)


def test_a_table_is_four_files_and_its_csv_has_what_the_picture_leaves_out(tmp_path):
    files = drawn("a.table1", "A table", {"model": "model", "share": "%"}, ROWS, tmp_path)
    assert files == [tmp_path / f"a.table1.{ending}" for ending in ("png", "pdf", "svg", "csv")]
    lines = list(csv.DictReader((tmp_path / "a.table1.csv").read_text().splitlines()))
    assert [line["claim"] for line in lines] == ["x", "y"]
    assert [line["tensors"] for line in lines] == ["467", "391"]


def test_a_table_is_wide_enough_for_its_text(tmp_path):
    import matplotlib.pyplot as plt

    kept = []
    close, plt.close = plt.close, kept.append
    try:
        columns = {key: key for key in ROWS[0]}
        drawn("a.table1", "A table whose title is longer than anything in its two lines", columns, ROWS, tmp_path)
    finally:
        plt.close = close
    (figure,) = kept
    page = figure.bbox
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    plt.close(figure)
    assert len(boxes) > 12
    assert all(page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1 for box in boxes)
    overlapping = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a.shrunk(0.9, 0.5).overlaps(b)]
    assert overlapping == []


def test_every_scheme_colour_is_in_the_picture_as_it_was_chosen(tmp_path):
    import matplotlib.pyplot as plt

    with style():
        figure, axis = plt.subplots(figsize=(7, 3))
        for x, colour in enumerate(SCHEME_COLOURS.values()):
            axis.plot([x], [0], "o", color=colour, markersize=4)
        png = save(figure, "dots", [{"x": 1}], [], tmp_path)[0]
    found, dpi = colours(png)
    assert dpi >= 199
    assert not [name for name, colour in SCHEME_COLOURS.items() if rgb(colour) not in found]


@pytest.mark.parametrize("outcome", ["agrees", "disagrees"])
def test_an_outcome_is_set_in_its_colour(tmp_path, outcome):
    png = drawn("a.b", "t", {"verdict": "verdict"}, [{"verdict": outcome}], tmp_path)[0]
    assert rgb(OUTCOME_COLOURS[outcome]) in colours(png)[0]


@pytest.mark.parametrize(("calibration", "drawn"), [("nominal", True), ("published", False)])
def test_auto_has_its_colour_among_the_papers_schemes_where_its_times_are_known(tmp_path, calibration, drawn):
    figure = discover()["ssfusion.fig16"]
    rows = Store(tmp_path, reference_dir()).reference_rows("bandwidth")
    chosen = [row for row in rows if row.case.calibration.startswith(calibration)]
    assert {"auto", "ssfusion_oi"} <= {row.case.scheme for row in chosen}
    png = next(path for path in figure.draw(chosen, tmp_path) if path.suffix == ".png")
    assert (rgb(SCHEME_COLOURS["auto"]) in colours(png)[0]) is drawn
