"""The report is one page that needs nothing else: every claim is in it, every picture, and no address elsewhere."""

import base64
import gzip
import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from figures.synthetic_clusters import clusters
from PIL import Image

from experiments.common.claims.ledger import ledgers
from experiments.common.figures.discovery import discover
from experiments.common.figures.every_claim import headlines
from experiments.common.pages import report
from experiments.common.pages.readme import reference_rows
from experiments.common.pages.report import chosen_row, report_page, step_timeline

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


@pytest.mark.slow
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


BROWSER = """
const rows = %s;
const options = [{ value: "acpsgd", textContent: "ACP-SGD" }];
const field = (id) => ({ id, value: "", options, addEventListener(kind, act) { this[kind] = act; } });
const parts = Object.fromEntries(["paper", "verdict", "origin", "search", "shown"].map((id) => [id, field(id)]));
globalThis.document = {
  getElementById: (id) => parts[id],
  querySelectorAll: (what) => (what === ".claims tr[id]" ? rows : []),
};
%s
const found = {};
for (const [paper, asked] of %s) {
  parts.paper.value = paper;
  parts.search.value = asked;
  apply();
  found[`${paper}|${asked}`] = [rows.filter((row) => !row.hidden).map((row) => row.id), parts.shown.textContent];
}
globalThis.window = { scrollTo: (_, y) => (at = y) };
let at = "nowhere";
document.querySelector = () => ({ scrollIntoView: () => (at = "first hit") });
for (const asked of ["Fig. 11", "no such words", ""]) {
  Object.assign(parts.search, { value: asked });
  parts.paper.value = "";
  parts.search.input();
  (found[`|${asked}`] ??= [[], ""])[1] += ` at ${at}`;
}
console.log(JSON.stringify(found));
"""
"""As much of a browser as the page's script asks for."""


class Lines(HTMLParser):
    """The claims of the page as the script sees them: id, data and text."""

    def __init__(self):
        super().__init__()
        self.rows, self.deep = [], 0

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag == "tr":
            self.deep = "data-verdict" in found
            if self.deep:
                data = {name.removeprefix("data-"): value for name, value in found.items() if name.startswith("data-")}
                self.rows.append({"id": found["id"], "dataset": data, "textContent": ""})

    def handle_endtag(self, tag):
        if tag == "table":
            self.deep = False

    def handle_data(self, data):
        if self.deep:
            self.rows[-1]["textContent"] += data


@pytest.fixture(scope="module")
def searched(parsed, tmp_path_factory):
    """Return a function from (paper, words) to the ids that the page shows and what it says of their number."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node, which runs the page's script")
    lines = Lines()
    lines.feed(parsed[0])
    work = files("experiments.common.pages").joinpath("report.js").read_text(encoding="utf-8")
    path = tmp_path_factory.mktemp("script") / "page.js"

    def run(*asked):
        path.write_text(BROWSER % (json.dumps(lines.rows), work, json.dumps(asked)), encoding="utf-8")
        out = subprocess.run([node, path], capture_output=True, text=True, check=True).stdout
        return [json.loads(out)[f"{paper}|{words}"] for paper, words in asked]

    return run


def of(artifact):
    return {claim.id for ledger in ledgers() for claim in ledger.claims if claim.artifact == artifact}


def test_a_figure_is_found_by_every_way_to_write_its_name(searched):
    names = ("Fig. 11", "fig11", "Figure 11", "ssfusion.fig11", "FIG 11")
    for found, _ in searched(*(("ssfusion", name) for name in names)):
        assert of("ssfusion.fig11") <= set(found)
    artifacts = {claim.artifact for ledger in ledgers() for claim in ledger.claims}
    figures = sorted(one for one in artifacts if re.fullmatch(r"\w+\.(fig|table)\d+", one))
    assert len(figures) > 20
    parts = [one.partition(".") for one in figures]
    asked = [(paper, re.sub(r"(\d)", r" \1", name, count=1).capitalize()) for paper, _, name in parts]
    for figure, (found, _) in zip(figures, searched(*asked), strict=True):
        assert of(figure) <= set(found), figure


def test_numbers_names_sections_and_experiments_are_found_however_they_are_written(searched):
    same = [
        ("106.7%", "106.7 %"),
        ("Ok-Topk", "oktopk"),
        ("\u00a7V-B", "section V-B"),
        ("experiment 1", "exp1"),
        ("resnet-152", "resnet152"),
        ("Fig. 5(a)", "figure 5 (a)"),
        ("Table V", "table 5"),
    ]
    for one, two in same:
        (first, _), (second, _) = searched(("", one), ("", two))
        assert first == second, (one, two)
        assert first, one
    ((section, _),) = searched(("ssfusion", "\u00a7V-B"))
    assert all("V-B" in claim.locator for ledger in ledgers() for claim in ledger.claims if claim.id in section)
    ((experiment, _),) = searched(("ssfusion", "Experiment 1"))
    assert {one for one in of("ssfusion.fig11") if ".exp1." in one} <= set(experiment)
    assert not any("exp10" in one or "exp2." in one for one in experiment)


def test_the_first_hit_is_scrolled_to_and_the_page_begins_again_where_nothing_is_asked(searched):
    said = [said for _, said in searched(("", "Fig. 11"), ("", "no such words"), ("", ""))]
    assert [one.rpartition(" at ")[2] for one in said] == ["first hit", "first hit", "0"]


def test_an_empty_result_says_where_there_are_some(searched):
    (found, said), (none, nothing) = searched(("mergecomp", "Power-SGD BERT-Large"), ("", "no such words"))
    assert (found, none) == ([], [])
    assert re.search(r'nothing fits; with the filters at "all": \d+ in ACP-SGD', said)
    assert "ask for a figure" in nothing


def test_only_pictures_that_changed_are_packed_again(tmp_path, monkeypatch):
    for name, colour in (("ssfusion.fig11", "#0072b2"), ("ssfusion.fig13", "#d55e00")):
        Image.new("RGB", (400, 100), colour).save(tmp_path / f"{name}.png")
    packed, real = [], report._packed
    monkeypatch.setattr(report, "_packed", lambda content: packed.append(content) or real(content))
    first = [report._picture(tmp_path, name) for name in ("ssfusion.fig11", "ssfusion.fig13")]
    assert len(packed) == 2
    assert [report._picture(tmp_path, name) for name in ("ssfusion.fig11", "ssfusion.fig13")] == first
    assert len(packed) == 2
    Image.new("RGB", (400, 100), "#009e73").save(tmp_path / "ssfusion.fig13.png")
    again = [report._picture(tmp_path, name) for name in ("ssfusion.fig11", "ssfusion.fig13")]
    assert (len(packed), again[0] == first[0], again[1] == first[1]) == (3, True, False)
    assert len(list((tmp_path / report.PACKED).iterdir())) == 2


def test_a_page_is_made_again_only_when_something_in_it_changed(tmp_path, monkeypatch):
    made, rows, out = [], clusters()[:3], tmp_path / "report.html"
    monkeypatch.setattr(
        report, "report_page", lambda rows, pictures, paper: made.append(len(rows)) or "<html></html>\n"
    )

    def again(rows):
        return report.write_report(rows, tmp_path, out)

    assert (again(rows), again(rows)) == (True, False)
    first = out.read_text()
    assert again(rows[:2])
    assert again(rows)
    assert out.read_text() == first
    out.write_text(first.replace("<html>", "<html>edited"))
    assert again(rows)
    assert out.read_text() == first
    Image.new("RGB", (40, 10)).save(tmp_path / "ssfusion.fig11.png")
    assert (again(rows), again(rows)) == (True, False)
    assert made == [3, 2, 3, 3, 3]


def test_the_page_of_one_paper_has_its_claims_alone_and_what_it_says_twice(tmp_path):
    page = Page()
    text = report_page(clusters(), tmp_path, "s2reducer")
    page.feed(text)
    (ledger,) = (one for one in ledgers() if one.paper == "s2reducer")
    assert set(page.lines) == {claim.id for claim in ledger.claims}
    assert all(html.escape(said) in text for said in ledger.says_twice.values())
    assert "theorem2.delta" in text.partition("theorem2.rate")[0]


def test_what_a_paper_says_twice_is_an_issue_of_its_claims():
    for ledger in ledgers():
        issues = {claim.issue for claim in ledger.claims}
        assert ledger.says_twice
        assert ledger.says_twice.keys() <= issues
