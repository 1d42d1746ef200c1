"""One system of `few_labels.py`, in a process of its own: learns from rows and predicts those of the test.

Arguments: system, folder of the encoder (of `bertline`: of the fine-tuned model), JSON file of the rows, draw. The last
line is the list of predicted labels.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import repository_source  # noqa: F401

MOST_TOKENS = 128
FEW_ROWS, STEPS_OF_FEW, STEPS_OF_MORE = 60, 120, 400
STRENGTHS = np.logspace(-2, 2, 9)
"""Values of C that cross-validation chooses from."""


def main() -> None:
    """Learn, and print the predictions."""
    system, folder, rows_file, number = sys.argv[1:]
    rows: dict[str, list[dict[str, Any]]] = json.loads(Path(rows_file).read_text(encoding="utf-8"))
    labels = [row["label"] for row in rows["train"]]
    predicted = SIDES[system](folder, rows["train"], labels, rows["test"], int(number))
    print(json.dumps([str(label) for label in predicted]))


def texts_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return texts; those of a pair are joined, because SetFit and TF-IDF read one text."""
    return [f"{row['text']} [SEP] {row['text_pair']}" if "text_pair" in row else row["text"] for row in rows]


def of_bertline(folder: str, train: Any, labels: list[str], test: Any, number: int) -> list[str]:
    """Predict with what `bertline finetune` has exported."""
    import bertline

    model = bertline.load(folder, device="cpu")
    inputs = [[row[name] for row in test] for name in ("text", "text_pair") if name in test[0]]
    return [one.label for one in model.predict(*inputs)]


def setfit(folder: str, train: Any, labels: list[str], test: Any, number: int) -> Any:
    """Contrast of pairs, then a logistic regression (huggingface.co/docs/setfit), with a limit of steps."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    model = SetFitModel.from_pretrained(folder)
    steps = STEPS_OF_FEW if len(train) <= FEW_ROWS else STEPS_OF_MORE
    settings = TrainingArguments(
        output_dir=str(Path.cwd()), batch_size=16, max_steps=steps, max_length=MOST_TOKENS, seed=number,
        report_to="none", save_strategy="no",
    )  # fmt: skip
    dataset = Dataset.from_dict({"text": texts_of(train), "label": labels})
    Trainer(model=model, args=settings, train_dataset=dataset).train()
    return model.predict(texts_of(test))


def frozen(folder: str, train: Any, labels: list[str], test: Any, number: int) -> Any:
    """Logistic regression on vectors of length 1, of pairs on their difference and product."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu")
    model.max_seq_length = MOST_TOKENS

    def vectors(rows: Any) -> Any:
        columns = [name for name in ("text", "text_pair") if name in rows[0]]
        of = [model.encode([row[name] for row in rows], normalize_embeddings=True) for name in columns]
        return np.hstack([np.abs(of[0] - of[1]), of[0] * of[1]]) if len(of) == 2 else of[0]

    return regression(vectors(train), labels, vectors(test), number)


def tfidf(folder: str, train: Any, labels: list[str], test: Any, number: int) -> Any:
    """Logistic regression on weighted words and pairs of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(ngram_range=(1, 2))
    vectors = vectorizer.fit_transform(texts_of(train))
    return regression(vectors, labels, vectorizer.transform(texts_of(test)), number)


def regression(train: Any, labels: list[str], test: Any, number: int) -> Any:
    """Fit scikit-learn's logistic regression, its C chosen by five-fold cross-validation."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.model_selection import StratifiedKFold

    folds = StratifiedKFold(5, shuffle=True, random_state=number)
    model = LogisticRegressionCV(Cs=STRENGTHS, cv=folds, scoring="accuracy", max_iter=1000)
    return model.fit(train, labels).predict(test)


SIDES = {"bertline": of_bertline, "setfit": setfit, "frozen": frozen, "tfidf": tfidf}

if __name__ == "__main__":
    main()
