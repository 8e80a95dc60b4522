"""No Markdown file points at something that is not there."""

import pytest
from docs.markdown import ROOT, anchors, documents, links


@pytest.mark.parametrize("document", documents(), ids=str)
def test_relative_links_lead_somewhere(document):
    for target in links(document):
        name, _, anchor = target.partition("#")
        path = (ROOT / document).parent / name if name else ROOT / document
        assert path.exists(), f"{document} links to {target}"
        if anchor:
            assert anchor in anchors(path), f"{document} links to {target}"


def test_the_documents_are_found():
    assert {"README.md", "CONTRIBUTING.md", "docs/index.md"} <= {str(path) for path in documents()}


def test_the_index_leads_to_every_page():
    index = ROOT / "docs/index.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in links(index)}
    assert set((ROOT / "docs").rglob("*.md")) - {index} <= linked
