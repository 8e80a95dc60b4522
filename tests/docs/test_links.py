"""No Markdown file points at something that is not there."""

import tomllib

import pytest
import yaml
from docs.markdown import ROOT, anchors, documents, links

import ssfx


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


def test_the_site_has_every_page_that_the_index_leads_to_once():
    index = ROOT / "docs/index.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in links(index)}
    pages = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    named = [name for part in pages for name in (next(iter(part.values())) if isinstance(part, dict) else [part])]
    assert len(named) == len(set(named))
    others = {index, ROOT / "CHANGELOG.md", ROOT / "docs/options.md"}  # `make site` writes the last
    assert {ROOT / name for name in named} == {path for path in linked if path.suffix == ".md"} | others


def test_versions_and_changes_agree():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert version == ssfx.__version__ == yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()
