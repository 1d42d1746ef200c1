"""corpus: clean text and split it into documents of sentences (artifacts/corpus).

python pipelines/corpus.py corpus=text corpus.path=data/text corpus.document=line
"""

from bertline.cli.composition import run_recipe
from bertline.stages.corpus import Corpus

if __name__ == "__main__":
    run_recipe(Corpus(), __file__, __doc__)
