"""Fine-tuned folders of every text kind, opened by transformers: the same outputs, and what they are said to mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

import finetuning_inputs as inputs
import tiny
from bertline.finetuning.task_kind import HeadSettings, task_kind
from bertline.kinds.regression.config import RegressionTaskConfig
from bertline.tasks.stored_rows import MultiLabelRows, NumberRows
from bertline.tokenization.tokenizer import Tokenizer

TEXTS = ["word1 word2 word3", "word30", "word5 word21"]
OTHERS = ["word4", "word31 word7", "word8 word9 word20"]
IDS = ["0", "1", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return inputs.write_encoder(tmp_path_factory.mktemp("encoder"))


def regression(head):
    fields = {
        "kind": "regression", "source": inputs.table_source(text_pair_column="other"), "low": 0.0, "high": 5.0,
        "head": head, "pooling": "mean", "metric": "pearson", "max_length": 16, "num_train_rows": None,
        "label_efficiency_rows": (),
        "max_dev_rows": None, "max_test_rows": None,
        "dev_fraction": 0.1, "test_fraction": 0.1, "split_seed": 0, "start_from": None,
        "num_trials": None, "space": {}, "fine_tuning": {},
    }  # fmt: skip
    return RegressionTaskConfig(**fields)


def saved(kind, rows, folder, out):
    """Predictions of a model with a new head, and where it was saved."""
    model = kind.new_model(folder, HeadSettings(0.1, 3, "plain"))
    if hasattr(model, "classifier"):
        with torch.no_grad():
            model.classifier.bias.fill_(0.3)
    kind.save_model(model, out)
    return kind.predict(model, kind.encode(rows, Tokenizer.load(folder)), tiny.machine())


def theirs(out, folder, *texts):
    tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
    model, loading = transformers.AutoModelForSequenceClassification.from_pretrained(out, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"]
    with torch.no_grad():
        return model.eval(), model(**tokenizer(*texts, padding=True, return_tensors="pt")).logits


def test_several_labels(folder, tmp_path):
    kind = task_kind(inputs.task(multi_label=True, metric="micro_f1"), ("a", "b", "c"))
    found = saved(kind, MultiLabelRows(IDS, TEXTS, OTHERS, np.zeros((3, 3), dtype=np.int64)), folder, tmp_path)
    model, logits = theirs(tmp_path, folder, TEXTS, OTHERS)
    assert model.config.problem_type == "multi_label_classification"
    assert found == pytest.approx(logits.sigmoid().numpy(), abs=1e-6)


def test_a_number(folder, tmp_path):
    kind = task_kind(regression("linear"), ())
    found = saved(kind, NumberRows(IDS, TEXTS, OTHERS, np.zeros(3)), folder, tmp_path)
    model, logits = theirs(tmp_path, folder, TEXTS, OTHERS)
    assert model.config.problem_type == "regression" and model.config.num_labels == 1
    assert found == pytest.approx(5.0 * logits[:, 0].numpy(), abs=1e-5)


def test_the_cosine_of_two_texts(folder, tmp_path):
    kind = task_kind(regression("cosine"), ())
    found = saved(kind, NumberRows(IDS, TEXTS, OTHERS, np.zeros(3)), folder, tmp_path)
    tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
    model = transformers.BertModel.from_pretrained(tmp_path).eval()

    def vectors(texts):
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        with torch.no_grad():
            states, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
        return (states * mask).sum(1) / mask.sum(1)

    assert found == pytest.approx(5.0 * torch.cosine_similarity(vectors(TEXTS), vectors(OTHERS)).numpy(), abs=1e-5)
