"""would_drop: what the corpus stage would drop under a configuration, with samples; keeps nothing that it writes.

python pipelines/would_drop.py corpus=text corpus.path=data/text corpus.near_duplicates.threshold=0.7
"""

import on_ctrl_c  # noqa: F401

# isort: split
import tempfile
from pathlib import Path
from typing import Any

from bertline.corpus.build import build_corpus
from bertline.corpus.quality.drops import DropSamples, drops_in_words
from bertline.foundation.progress import say
from bertline.orchestration.config import SECTIONS, pipeline_config
from composition import recipe


@recipe
def main(composed: dict[str, Any]) -> None:
    """Build the corpus in a temporary folder, print counts and samples by reason, and remove it."""
    config = pipeline_config({key: composed[key] for key in SECTIONS if key in composed})
    if config.corpus.kind == "none":
        say("corpus.kind is none: there is nothing to drop")
        return
    samples = DropSamples()
    with tempfile.TemporaryDirectory(prefix="bertline-would-drop-") as folder:
        out = Path(folder) / "corpus"
        build_corpus(config.corpus, config.python_docs, out, num_workers=config.runtime.num_workers, samples=samples)
    for line in samples.lines():
        say(line)
    say(f"dry run: {drops_in_words(samples.counts, samples.names_of_files())}; the corpus was not kept")


if __name__ == "__main__":
    main()
