"""Write `squad_v2.json` again: `python tests/golden/squad_v2.py evaluate-v2.0.py`.

The argument is SQuAD's official evaluation script, version 2.0, as it stands at https://rajpurkar.github.io/SQuAD-explorer.
It is run as it is, once for each case, on files that this script makes up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bertline.foundation.files import write_json

GOLDEN = Path(__file__).with_suffix(".json")
NUM_RANDOM = 60
PARTS = ("the", "An", "a", "cat", "Cat", "dog", "12", "3.5", "É", "co-op", "!", "“x”", "東京", "İ", "cat's", "THE")
# A question: right answers (none where there is none), what is predicted, the no-answer score.
CORNERS: list[list[tuple[list[str], str, float]]] = [
    [(["cat"], "cat", -1.0)],
    [([], "cat", -1.0)],
    [([], "", 0.5), (["cat"], "", 2.0)],
    # Best never to answer.
    [([], "cat", -2.0), ([], "dog", -1.0), (["cat"], "dog", 0.5)],
    # Equal no-answer scores, of which only one question should be answered.
    [(["cat"], "cat", 1.5), ([], "dog", 1.5), (["dog"], "the dog", -3.0)],
    # Right answers, and predictions, of which nothing is left.
    [(["The!"], "", -1.0), (["The!"], "cat", 0.0), ([], "a", 0.25), ([], "!", 3.0), (["the", "cat"], "", 1.0)],
    [(["The!"], "an", 2.0), ([], "the", -2.0), (["dog"], "dog", -1.0)],
]


def main(script: Path) -> None:
    """Run the script on every case and write what it says."""
    cases = [*CORNERS, *random_cases()]
    recorded = [
        {"questions": case, "threshold": threshold, "official": official(script, case, threshold)}
        for case in cases
        # One of the no-answer scores, in the middle of them.
        for threshold in sorted(score for _, _, score in case)[len(case) // 2 :][:1]
    ]
    write_json(GOLDEN, recorded)
    print(f"{len(recorded)} cases in {GOLDEN.name}")


def random_cases() -> list[list[tuple[list[str], str, float]]]:
    """Questions with and without answers, right, half right and wrong; in every second case scores are equal often."""
    random = np.random.default_rng(0)

    def text() -> str:
        separator = str(random.choice([" ", " ", "  ", ". "]))
        return separator.join(random.choice(PARTS, random.integers(1, 5)))

    cases = []
    for number in range(NUM_RANDOM):
        size = int(random.integers(1, 9))
        scores = random.permutation(size) - 2.5 if number % 2 else random.choice([-1.0, 0.0, 2.0], size)
        case: list[tuple[list[str], str, float]] = []
        for score in scores:
            gold = [text() for _ in range(random.integers(0, 3))]
            tries = [text(), "", *(f"{right} {random.choice(PARTS)}" for right in gold), *gold]
            case.append((gold, str(random.choice(tries)), float(score)))
        cases.append(case)
    return cases


def official(script: Path, case: list[tuple[list[str], str, float]], threshold: float) -> dict[str, Any]:
    """What the script prints."""
    questions = [
        {"id": str(number), "answers": [{"text": text} for text in gold]} for number, (gold, _, _) in enumerate(case)
    ]
    files = {
        "data": {"data": [{"paragraphs": [{"qas": questions}]}]},
        "predictions": {str(number): predicted for number, (_, predicted, _) in enumerate(case)},
        "no_answer": {str(number): score for number, (_, _, score) in enumerate(case)},
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_text(json.dumps(content))
        options = ["--na-prob-file", "no_answer", f"--na-prob-thresh={threshold}"]
        command = [sys.executable, str(script.resolve()), "data", "predictions", *options]
        printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    return json.loads(printed)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
