"""What people have to read is short: the pages written by hand together, and each of their sentences."""

from pathlib import Path

import pytest
from docs.markdown import ROOT, by_hand, sentences, words

MOST_WORDS = 25_000
MOST_IN_A_SENTENCE = 34
"""The house rule is 30; some sentences are measurements with their conditions."""
PAGES = [Path("README.md"), Path("CONTRIBUTING.md"), *sorted(page.relative_to(ROOT) for page in ROOT.glob("docs/*.md"))]


def test_pages_written_by_hand_are_short_together():
    count = {str(page): words(by_hand(page)) for page in PAGES}
    assert sum(count.values()) <= MOST_WORDS, count


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_sentence_is_long(page):
    long = [sentence for sentence in sentences(by_hand(page)) if words(sentence) > MOST_IN_A_SENTENCE]
    assert not long


def test_words_and_sentences_are_counted_as_people_do():
    text = "# A heading\n\nOne two, three. Four\nfive:\n\n    code is none\n\n| a | b |\n| --- | --- |\n\n- six `se`.\n"
    assert words(text) == 14
    assert [words(one) for one in sentences(text) if one] == [3, 2, 2]
