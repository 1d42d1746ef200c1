"""corpus: clean text and split it into documents of sentences (artifacts/corpus).

python pipelines/corpus.py corpus=text corpus.path=data/text corpus.document=line
"""

from typing import Any

from bertline.cli.composition import recipe
from bertline.corpus.build import build_corpus
from bertline.run.records import show_corpus
from bertline.run.stage import open_stage
from bertline.run.unused import leave_out


@recipe
def main(composed: dict[str, Any]) -> None:
    """Read, clean, de-duplicate and split the text."""
    if leave_out("corpus", composed):  # a checkpoint is fine-tuned as it is
        return
    with open_stage("corpus", composed) as stage:
        config = stage.config
        assert config.corpus.kind != "none"
        metrics = build_corpus(config.corpus, config.python_docs, stage.output, engine=stage.engine, work=stage.shards)
        for shard in sorted(stage.output.glob("train-*.parquet"))[:1]:
            stage.record.log_table(shard, "documents", num_rows=20)
        stage.finish(metrics)
        show_corpus(stage)


if __name__ == "__main__":
    main()
