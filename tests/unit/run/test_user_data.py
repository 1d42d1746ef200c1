"""The user's data lies at, or is linked from, a place that DVC watches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.config import pipeline_config
from bertline.corpus.reader import CorpusReader
from bertline.foundation.errors import ConfigError
from bertline.run.user_data import check_paths, link_user_data

Composed = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "repository")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("Some text.")
    return folder


@pytest.mark.parametrize("kind", ["text", "wikiextractor", "jsonl", "csv", "parquet"])
def test_a_folder_elsewhere_is_linked_and_linked_again_when_the_path_changes(
    composed: Composed, texts: Path, kind: str
) -> None:
    link_user_data(pipeline_config(composed()))
    other = texts.parent / "other [a]"  # no glob: there is such a folder
    other.mkdir()
    (other / "b.txt").write_text("Other text.")
    for path, linked in ((texts, texts), (other, other), (f"{texts}/*.txt", texts)):
        link_user_data(pipeline_config(composed(f"corpus={kind}", f"corpus.path='{path}'")))
        assert Path("data/text").resolve() == linked


def test_the_treebank_of_the_probe_is_linked_so_that_dvc_sees_it_change(composed: Composed, tmp_path: Path) -> None:
    probe = f"pretrain.head_probe={{treebank: '{tmp_path / 'dev.conllu'}', every_steps: 5, max_sentences: 9}}"
    with pytest.raises(ConfigError, match=r"pretrain\.head_probe\.treebank is .*dev\.conllu does not exist"):
        check_paths(pipeline_config(composed(probe)))
    (tmp_path / "dev.conllu").write_text("")
    link_user_data(pipeline_config(composed(probe)))
    assert Path("data/treebank").resolve() == tmp_path / "dev.conllu"


def test_an_empty_place_is_an_error_that_says_how_to_name_the_path(composed: Composed) -> None:
    link_user_data(pipeline_config(composed()))
    with pytest.raises(ConfigError, match=r"corpus\.path is .* is an empty folder.*Put your.*corpus\.path=/path/to/it"):
        link_user_data(pipeline_config(composed("corpus=text")))


def test_an_empty_folder_elsewhere_is_named_and_an_empty_place_may_still_be_filled(
    composed: Composed, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    elsewhere = pipeline_config(composed("corpus=text", f"corpus.path={tmp_path / 'empty'}"))
    for check in (check_paths, link_user_data):
        with pytest.raises(ConfigError, match=r"corpus\.path is .*empty is an empty folder"):
            check(elsewhere)
    link_user_data(pipeline_config(composed()))
    check_paths(pipeline_config(composed("corpus=text")))


def test_other_data_in_the_place_is_never_replaced(composed: Composed, texts: Path) -> None:
    Path("data/text").mkdir(parents=True)
    Path("data/text/mine.txt").write_text("Mine.")
    with pytest.raises(ConfigError, match="already holds other data"):
        link_user_data(pipeline_config(composed("corpus=text", f"corpus.path={texts}")))
    assert Path("data/text/mine.txt").exists()


@pytest.mark.parametrize("kind", ["existing", "extended"])
def test_a_given_vocabulary_is_linked_so_that_dvc_sees_it_change(composed: Composed, texts: Path, kind: str) -> None:
    given = [f"tokenizer={kind}", f"tokenizer.path={texts}", "pretrain.start_from=some/model"]
    link_user_data(pipeline_config(composed(*given)))
    assert Path("data/vocabulary").resolve() == texts.resolve()


def test_a_corpus_reader_that_does_not_name_the_users_data_cannot_be_defined() -> None:
    with pytest.raises(TypeError, match="Forgetful: set user_data"):

        class Forgetful(CorpusReader):
            path: str

    with pytest.raises(TypeError, match="'folder', which is not one of its fields"):

        class Misspelt(CorpusReader):
            user_data = "folder"
            path: str


def test_a_missing_path_is_found_without_linking_anything(composed: Composed, texts: Path) -> None:
    check_paths(pipeline_config(composed("corpus=text", f"corpus.path={texts}")))
    for overrides in (("corpus=text", "corpus.path=/no/such"), ("sweep.encoders=[/no/such]",)):
        with pytest.raises(ConfigError, match=r"is /no/such; /no/such does not exist"):
            check_paths(pipeline_config(composed(*overrides)))
    assert not Path("data").exists()
