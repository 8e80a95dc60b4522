"""The report is one page that needs nothing else: every claim is in it, every picture, and no address elsewhere."""

import base64
import gzip
import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from figures.synthetic_clusters import clusters
from PIL import Image

from ssfx.claims.every_claim import headlines
from ssfx.claims.ledger import ledgers
from ssfx.figures.discovery import discover
from ssfx.pages.readme import reference_rows
from ssfx.pages.report import report_page
from ssfx.pages.step_timeline import chosen_row, step_timeline

VOID = {"meta", "img", "input", "br"}
OPTIONAL = {"tr", "td", "th", "li", "p"}
"""Elements whose end may be left out."""


class Page(HTMLParser):
    """Collects what a test asks about, and notices what is not closed."""

    def __init__(self):
        super().__init__()
        self.addresses, self.lines, self.images, self.open, self.ids = [], {}, {}, [], []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.addresses += [found[name] for name in ("src", "href", "action", "data") if name in found]
        if "id" in found:
            self.ids.append(found["id"])
        if "data-verdict" in found:
            self.lines[found["id"]] = found
        if tag == "img":
            self.images[found["alt"]] = found["src"]
        if tag not in VOID | OPTIONAL:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in OPTIONAL:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def parsed(tmp_path_factory):
    pictures = tmp_path_factory.mktemp("pictures")
    for name in ("ssfusion.fig11", "ssfusion.table2", "codecs.achieved_density"):
        Image.new("RGB", (2400, 600), "#0072b2").save(pictures / f"{name}.png")
    text = report_page(clusters(), pictures)
    page = Page()
    page.feed(text)
    page.close()
    return text, page


def test_it_asks_for_nothing_from_anywhere(parsed):
    text, page = parsed
    assert page.addresses
    assert {address.partition(":")[0].partition("-")[0] for address in page.addresses if address[0] != "#"} == {"data"}
    assert "http://" not in text
    assert "https://" not in text
    assert "@import" not in text
    assert page.open == []


def test_every_claim_is_there_once_with_the_verdict_that_counts(parsed):
    _, page = parsed
    verdicts = headlines(discover().values(), clusters())
    assert set(page.lines) == {claim.id for ledger in ledgers() for claim in ledger.claims} == set(verdicts)
    for name, one in verdicts.items():
        assert (page.lines[name]["data-verdict"], page.lines[name]["data-origin"]) == (one.outcome, one.source)
    assert len(set(page.ids)) == len(page.ids)


def test_links_inside_lead_somewhere(parsed):
    _, page = parsed
    inside = {address[1:] for address in page.addresses if address.startswith("#")}
    assert inside
    assert inside <= set(page.ids)


def test_pictures_are_part_of_the_page_and_not_larger_than_a_screen(parsed, tmp_path):
    import base64
    import io

    _, page = parsed
    assert set(page.images) == {"ssfusion.fig11", "ssfusion.table2", "codecs.achieved_density"}
    packed = base64.b64decode(page.images["ssfusion.fig11"].partition(",")[2])
    with Image.open(io.BytesIO(packed)) as image:
        assert image.size == (1500, 375)
        assert image.convert("RGB").getpixel((5, 5)) == (0, 0x72, 0xB2)


def test_a_simulated_step_is_drawn_and_its_trace_can_be_saved():
    rows = [row for row in reference_rows() if row.case.experiment == "throughput" and row.case.cluster.name == "16gpu"]
    row = chosen_row(rows)
    assert row is not None
    assert row.case.scheme.startswith("ssfusion")
    text = step_timeline(row)
    page = Page()
    page.feed(text)
    assert page.open == []
    (link,) = page.addresses
    events = json.loads(gzip.decompress(base64.b64decode(link.partition("base64,")[2])))["traceEvents"]
    ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X"]
    assert max(ends) == pytest.approx(1e6 * row.metrics["iteration_s"], rel=1e-6)
    assert text.count("<rect") > 5
    assert "exchange" in text
    other = replace(row, metrics={**row.metrics, "iteration_s": 2 * row.metrics["iteration_s"]})
    assert step_timeline(other) == ""
    assert chosen_row([]) is None
