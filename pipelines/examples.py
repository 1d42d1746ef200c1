"""examples: sentence pairs of each length as memory-mapped shards (artifacts/examples).

python pipelines/examples.py examples.lengths=[64,128]
"""

from bertline.cli.composition import run_recipe
from bertline.stages.examples import Examples

if __name__ == "__main__":
    run_recipe(Examples(), __file__, __doc__)
