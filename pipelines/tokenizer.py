"""tokenizer: a vocabulary trained on the corpus, or a given one (artifacts/tokenizer).

python pipelines/tokenizer.py tokenizer.vocab_size=4096
"""

from typing import Any

from bertline.cli.composition import recipe
from bertline.run.records import show_data
from bertline.run.stage import open_stage
from bertline.run.unused import leave_out
from bertline.tokenization.build import build_tokenizer


@recipe
def main(composed: dict[str, Any]) -> None:
    """Train or read the vocabulary, and write the tokenizer."""
    if leave_out("tokenizer", composed):  # a checkpoint is fine-tuned as it is
        return
    with open_stage("tokenizer", composed) as stage:
        config = stage.config
        assert config.tokenizer.kind != "none"
        metrics = build_tokenizer(
            config.tokenizer, stage.inputs["corpus"], stage.output, engine=stage.engine, work=stage.shards
        )
        for vocabulary in stage.output.glob("vocab.txt"):  # of a WordPiece
            stage.record.log_artifact(vocabulary, contains_text=True)
        stage.finish(metrics)
        show_data(stage)


if __name__ == "__main__":
    main()
