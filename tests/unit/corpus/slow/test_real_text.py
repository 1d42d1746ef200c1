"""The readers on the corpora in ../shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bertline.corpus.readers.text import TextCorpusConfig
from bertline.corpus.readers.wikiextractor import WikiExtractorCorpusConfig

CORPORA = Path(__file__).parents[5] / "shared" / "data" / "corpora"
shared_data = pytest.mark.skipif(not CORPORA.is_dir(), reason="the real corpora are not in ../shared")


@pytest.mark.shared_data
@shared_data
def test_all_articles_of_the_wikipedia_sample_are_read(wiki_config: Callable[..., WikiExtractorCorpusConfig]) -> None:
    dropped: Counter[str] = Counter()

    articles = list(wiki_config(path=str(CORPORA / "wikipedia")).read(dropped))

    assert len({article.id for article in articles}) == len(articles) == 9662
    assert dropped["files/not_wikiextractor"] == 1
    assert sum(len(paragraph.split()) for article in articles for paragraph in article.paragraphs) > 24_000_000


@pytest.mark.shared_data
@shared_data
def test_all_novels_are_read(text_config: Callable[..., TextCorpusConfig]) -> None:
    novels = list(text_config(path=str(CORPORA / "novels" / "*.txt.gz")).read(Counter()))

    assert len(novels) == 100
    assert sum(len(paragraph.split()) for novel in novels for paragraph in novel.paragraphs) > 14_000_000
