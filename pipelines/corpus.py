"""corpus: clean text and split it into documents of sentences (artifacts/corpus).

python pipelines/corpus.py corpus=text corpus.path=data/text corpus.document=line
"""

import on_ctrl_c  # noqa: F401

# isort: split
from typing import Any

from bertline.corpus.build import build_corpus
from bertline.corpus.quality.drops import DropSamples
from bertline.orchestration.corpus_page import show_corpus
from bertline.orchestration.stage_run import open_stage
from bertline.orchestration.unused import leave_out
from composition import recipe


@recipe
def main(composed: dict[str, Any]) -> None:
    """Read, clean, de-duplicate and split the text."""
    if leave_out("corpus", composed):
        return
    with open_stage("corpus", composed) as stage:
        assert stage.config.corpus.kind != "none"  # otherwise the stage was skipped
        samples = DropSamples()
        metrics = build_corpus(
            stage.config.corpus,
            stage.config.python_docs,
            stage.output,
            num_workers=stage.config.runtime.num_workers,
            samples=samples,
        )
        for shard in sorted(stage.output.glob("train-*.parquet"))[:1]:
            stage.record.log_table(shard, "documents", num_rows=20)
        stage.finish(metrics)
        show_corpus(stage, samples)


if __name__ == "__main__":
    main()
