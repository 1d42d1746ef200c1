"""Linear models answer as fine-tuned encoders do, in Python, for files and through MLflow, and have no encoder."""

from __future__ import annotations

import json
from pathlib import Path

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest

import bertline
from bertline.finetuning.task_file import read_teacher
from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.inference import pyfunc
from bertline.inference.predict import FileColumns, predict_file
from bertline.kinds.classification import LabelsPrediction, Prediction
from bertline.kinds.token_classification import Entity
from bertline.tracking.mlmodel import write_mlmodel
from linear_models import write_linear


def asked(case, test):
    """Inputs of `predict`."""
    if case == "tags":
        return [test.words]
    return [test.texts] if test.text_pairs is None else [test.texts, test.text_pairs]


@pytest.mark.parametrize("case", ["classes", "sharpened", "pairs", "several", "numbers", "tags"])
def test_it_answers_in_python_in_files_and_through_mlflow(case, tmp_path):
    kind, baseline, test = write_linear(tmp_path / "model", case)
    model = bertline.load(str(tmp_path / "model"))
    inputs, scored = asked(case, test), baseline.predictions["test"]
    found = model.predict(*inputs)
    match found[0]:
        case Prediction():
            assert [each.label for each in found] == [kind.labels[label] for label in scored.argmax(1)]
            np.testing.assert_allclose([list(each.probabilities.values()) for each in found], scored, atol=1e-7)
        case LabelsPrediction():
            chosen = [tuple(kind.labels[label] for label in np.flatnonzero(row >= 0.9)) for row in scored]
            assert [each.labels for each in found] == chosen
        case float():
            np.testing.assert_allclose(found, scored, atol=1e-12)
        case _:
            for words, labels, entities in zip(test.words, scored.labels, found, strict=True):
                assert [each.text for each in entities] == [words[place] for place in np.flatnonzero(labels)]
            assert all(isinstance(each, Entity) and 0.3 < each.score <= 1 for of_row in found for each in of_row)
            assert model.predict(["a Sign_1, w5", ""])[0][0].start == 2  # a text is split into words

    names = ["text", "text_pair"][: len(inputs)]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*inputs, strict=True)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = FileColumns(text_pair="text_pair" if len(names) == 2 else None)
    predict_file(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl", columns=columns, num_threads=2)
    outputs = model.task.file_outputs(*inputs)
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert written == json.loads(json.dumps([{**row, **more} for row, more in zip(rows, outputs, strict=True)]))

    serving = pyfunc.serving_of(tmp_path / "model", dataset=None)
    assert "transformers" not in serving.packages
    write_mlmodel(tmp_path / "model", tmp_path / "served", serving, model_id="m-1", run_id="r1")
    assert not [path for path in (tmp_path / "served").rglob("*") if path.suffix in (".pkl", ".bin", ".onnx")]
    answers = mlflow.pyfunc.load_model(str(tmp_path / "served")).predict(pd.DataFrame(rows))
    assert answers.to_dict("records") == outputs


def test_what_looks_into_an_encoder_is_refused_and_names_the_one_beside_it(tmp_path: Path) -> None:
    write_linear(tmp_path / "model", "classes")
    model = bertline.load(str(tmp_path / "model"))
    assert repr(model) == (
        "<word and character n-grams, linear model, classification (not in train, a, b, c), without an encoder>"
    )
    for look in (
        lambda: model.embed(["a"]), lambda: model.fill_mask("a [MASK]"), lambda: model.search(["a"], ["b"]),
        lambda: model.attentions("a"), lambda: model.next_sentence("a", "b"), lambda: model.encoder,
    ):  # fmt: skip
        with pytest.raises(ArtifactError, match="NAME-encoder beside it"):
            look()
    (tmp_path / "in.txt").write_text("one\n")
    with pytest.raises(ArtifactError, match="has no encoder"):
        predict_file(model, tmp_path / "in.txt", tmp_path / "out.jsonl", output="vectors")
    with pytest.raises(ConfigError, match="the one beside it, model-encoder"):
        read_teacher(tmp_path / "model")
    with pytest.raises(AttributeError, match="typo"):
        _ = model.typo
    (tmp_path / "model" / "task.json").unlink()
    with pytest.raises(ArtifactError, match="task.json is missing"):
        bertline.load(str(tmp_path / "model"))
