"""The readers on real text: installed packages, and the corpora in ../shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bertline.corpus.config import PackageConfig, PythonDocsConfig
from bertline.corpus.preparation import prepare_documents
from bertline.corpus.readers.python_docs import PythonDocsCorpusConfig
from bertline.corpus.readers.text import TextCorpusConfig
from bertline.corpus.readers.wikiextractor import WikiExtractorCorpusConfig
from bertline.corpus.selection import select_documents, split_of
from corpus_reading import documents_of

CORPORA = Path(__file__).parents[4] / "shared" / "data" / "corpora"
shared_data = pytest.mark.skipif(not CORPORA.is_dir(), reason="the real corpora are not in ../shared")


def test_no_validation_paragraph_of_real_packages_stands_in_train(
    docs_corpus_config: PythonDocsCorpusConfig,
) -> None:
    packages = (
        PackageConfig(module="optuna", distribution="optuna"),
        PackageConfig(module="mpmath", distribution="mpmath"),
    )
    config = PythonDocsConfig(packages=packages, held_out_fraction=0.1, split_seed=0)
    dropped: Counter[str] = Counter()
    documents = list(docs_corpus_config.read(dropped, python_docs=config, num_workers=1))
    kept = select_documents(prepare_documents(documents), docs_corpus_config, dropped)

    keys: dict[str, list[bytes]] = {"train": [], "validation": []}
    for document in kept:
        keys[split_of(document, docs_corpus_config)].extend(paragraph.key for paragraph in document.paragraphs)

    assert dropped["paragraphs/duplicate"] > 100
    assert len(keys["train"]) > 1000 and len(keys["validation"]) > 100
    assert set(keys["train"]).isdisjoint(keys["validation"])


@pytest.mark.shared_data
@shared_data
def test_all_articles_of_the_wikipedia_sample_are_read(wiki_config: Callable[..., WikiExtractorCorpusConfig]) -> None:
    dropped: Counter[str] = Counter()

    articles = list(documents_of(wiki_config(path=str(CORPORA / "wikipedia")), dropped))

    assert len({article.id for article in articles}) == len(articles) == 9662
    assert dropped["files/not_wikiextractor"] == 1
    assert sum(len(paragraph.split()) for article in articles for paragraph in article.paragraphs) > 24_000_000


@pytest.mark.shared_data
@shared_data
def test_all_novels_are_read(text_config: Callable[..., TextCorpusConfig]) -> None:
    novels = list(documents_of(text_config(path=str(CORPORA / "novels" / "*.txt.gz")), Counter()))

    assert len(novels) == 100
    assert sum(len(paragraph.split()) for novel in novels for paragraph in novel.paragraphs) > 14_000_000
