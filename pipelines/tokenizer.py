"""tokenizer: a vocabulary trained on the corpus, or a given one (artifacts/tokenizer).

python pipelines/tokenizer.py tokenizer.vocab_size=4096
"""

import on_ctrl_c  # noqa: F401

# isort: split
from typing import Any

from bertline.orchestration.stage_run import open_stage
from bertline.orchestration.unused import leave_out
from bertline.orchestration.vocabulary_page import show_vocabulary
from bertline.tokenization.build import build_tokenizer
from composition import recipe


@recipe
def main(composed: dict[str, Any]) -> None:
    """Train or read the vocabulary, and write the tokenizer."""
    if leave_out("tokenizer", composed):
        return
    with open_stage("tokenizer", composed) as stage:
        assert stage.config.tokenizer.kind != "none"  # otherwise the stage was skipped
        metrics = build_tokenizer(
            stage.config.tokenizer,
            stage.inputs["corpus"],
            stage.output,
            num_workers=stage.config.runtime.num_workers,
        )
        for vocabulary in stage.output.glob("vocab.txt"):  # of a WordPiece
            stage.record.log_artifact(vocabulary, contains_text=True)
        stage.finish(metrics)
        show_vocabulary(stage)


if __name__ == "__main__":
    main()
