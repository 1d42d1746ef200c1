"""tokenizer: a vocabulary trained on the corpus, or a given one (artifacts/tokenizer).

python pipelines/tokenizer.py tokenizer.vocab_size=4096
"""

from bertline.cli.composition import run_recipe
from bertline.stages.tokenizer import Tokenizer

if __name__ == "__main__":
    run_recipe(Tokenizer(), __file__, __doc__)
