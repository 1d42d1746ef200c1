"""Sets of labels, in Python and for files, of encoders and linear models; other models refuse them."""

from __future__ import annotations

import json
import shutil

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

import bertline
from bertline.finetuning.task_file import read_task_file, write_task_file
from bertline.foundation.errors import ArtifactError
from bertline.inference.predict import predict_file
from bertline.inference.pyfunc import serving_of
from bertline.kinds.classification import LabelsPrediction
from bertline.kinds.label_sets import LabelSets
from bertline.tracking.mlmodel import write_mlmodel
from linear_models import write_linear


@pytest.fixture(params=["encoder", "linear"])
def folder(request, open_task, tmp_path):
    """A classifier in whose sets labels are that have at least a third of the probability, with coverage 0.9."""
    if request.param == "linear":
        write_linear(tmp_path / "model", "classes")
    else:
        shutil.copytree(open_task("windows")[0].folder, tmp_path / "model")
    sets = LabelSets(np.repeat([0.1, 0.666, 0.9], (10, 9, 1)).tolist(), "half of dev")
    finished = read_task_file(tmp_path / "model")
    write_task_file(tmp_path / "model", finished.kind, finished.calibration, sets)
    return tmp_path / "model"


def test_a_set_has_the_labels_that_are_likely_enough(folder, tmp_path):
    model, texts = bertline.load(str(folder)), ["the cat sat Sign_1", "Sign_2 w5 mat", "dog", "a cafe w3 Sign_0"]
    plain, sets = model.predict(texts), model.predict(texts, coverage=0.9)
    likely = [tuple(name for name, each in one.probabilities.items() if each >= 1 - 0.666) for one in plain]
    assert sets == [LabelsPrediction(few, one.probabilities) for few, one in zip(likely, plain, strict=True)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    predict_file(model, tmp_path / "in.jsonl", tmp_path / "out.parquet", coverage=0.9)
    predict_file(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl", coverage=0.9)
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["label_set"] for row in written] == [list(few) for few in likely]
    assert [row["predicted"] for row in written] == [one.label for one in plain]
    predict_file(model, tmp_path / "in.jsonl", tmp_path / "plain.jsonl")
    assert "label_set" not in json.loads((tmp_path / "plain.jsonl").read_text().splitlines()[0])

    write_mlmodel(folder, tmp_path / "served", serving_of(folder, dataset=None), model_id="m-1", run_id="r1")
    served, table = mlflow.pyfunc.load_model(str(tmp_path / "served")), pd.DataFrame({"text": texts})
    assert "label_set" not in served.predict(table)
    assert served.predict(table, {"coverage": 0.9})["label_set"].tolist() == [list(few) for few in likely]
    with pytest.raises(MlflowException, match=r"coverage is 1\.5; expected a share"):
        served.predict(table, {"coverage": 1.5})


@pytest.mark.parametrize("case", ["classes", "several"])
def test_a_model_without_scores_refuses_coverage(case, tmp_path):
    _, _, test = write_linear(tmp_path / "model", case)
    model, inputs = bertline.load(str(tmp_path / "model")), [test.texts]
    with pytest.raises(ArtifactError, match="one label a row: .* has no label_sets.json"):
        model.predict(*inputs, coverage=0.9)
