"""From outcomes to figures, and the errors that are worth a look."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bertline.sweep.results import confident_errors, write_errors_page


def predictions(correct, score, texts=None):
    num_rows = len(correct)
    return pa.table(
        {
            "id": [f"row {place}" for place in range(num_rows)],
            "text": texts or [f"text {place}" for place in range(num_rows)],
            "gold": ["yes"] * num_rows,
            "predicted": ["no"] * num_rows,
            "score": pa.array(score, pa.float64()),
            "correct": correct,
            "probability_yes": [0.1] * num_rows,
        }
    )


def ids(errors):
    return [error["id"] for error in errors]


def test_the_surest_errors_come_first_and_right_answers_not_at_all():
    table = predictions([False, True, False, False], [0.6, 0.99, 0.9, 0.7])
    assert ids(confident_errors(table, 2, right_from=0.5)) == ["row 2", "row 3"]
    assert list(confident_errors(table, 1, right_from=0.5)[0]) == ["id", "text", "gold", "predicted", "score"]
    assert confident_errors(predictions([True], [0.5]), 5, right_from=0.5) == []


def test_where_being_right_has_degrees_less_than_half_is_wrong_and_the_worst_of_equals_comes_first():
    table = predictions([0.4, 0.5, 0.0, 1.0], [0.8, 0.9, 0.8, 0.99])
    assert ids(confident_errors(table, 5, right_from=0.5)) == ["row 2", "row 0"]


def test_long_inputs_are_cut():
    (error,) = confident_errors(predictions([False], [0.9], texts=["a" * 5000]), 1, right_from=0.5)
    assert 2000 < len(error["text"]) < 2010


def test_the_page_shows_texts_as_texts(tmp_path):
    path = tmp_path / "errors.html"
    table = predictions([False], [0.9], texts=["<script>alert('x')</script> & more"])
    errors = confident_errors(table, 5, right_from=0.5)
    write_errors_page(path, task="<task>", errors=errors, num_rows=7)
    page = path.read_text()
    assert "&lt;script&gt;" in page
    assert "<script>" not in page and "<task>" not in page
    assert "1 of the wrong answers on 7 test rows" in page
    write_errors_page(path, task="task", errors=[], num_rows=7)
    assert "None of the 7 test rows was answered wrong" in path.read_text()


def page_of(tmp_path, error):
    write_errors_page(tmp_path / "errors.html", task="task", errors=[{"id": "1", "score": 0.9, **error}], num_rows=7)
    return (tmp_path / "errors.html").read_text()


@pytest.mark.parametrize("as_list", [False, True])
def test_labels_of_words_stand_below_their_words(tmp_path, as_list):
    words, gold, predicted = ["Ada", "met", "<Bob>"], ["B-person", "O", "O"], ["B-person", "O", "B-person"]
    labels = {name: of if as_list else " ".join(of) for name, of in (("gold", gold), ("predicted", predicted))}
    page = page_of(tmp_path, {"text": " ".join(words), "words": words, **labels})
    assert '<span>Ada<small class="gold">B-person</small></span>' in page
    assert "<span>met</span>" in page  # right, and outside of every entity
    assert '<span>&lt;Bob&gt;<small class="gold">O</small><small class="predicted">B-person</small></span>' in page
    assert "<dt>words, 0.900</dt>" in page and "<dt>text</dt>" not in page
    assert "Below each word" in page


def test_a_search_shows_the_texts_of_documents_and_not_their_ids(tmp_path):
    texts = {"first_document": "On <air>.", "right_document": "On wings."}
    error = {"query": "wings", "gold": "d1, d7", "predicted": "d2", **texts}
    page = page_of(tmp_path, error)
    assert '<dt>right</dt><dd class="gold">On wings.</dd>' in page
    assert '<dt>predicted, 0.900</dt><dd class="predicted">On &lt;air&gt;.</dd>' in page
    assert "d1" not in page and "d2" not in page
    assert '<dd class="gold">d1, d7</dd>' in page_of(tmp_path, {**error, "right_document": ""})  # no such text
