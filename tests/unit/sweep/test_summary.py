"""From outcomes to figures, and the errors that are worth a look."""

from __future__ import annotations

import pyarrow as pa

from bertline.sweep.results import confident_errors


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
