"""evaluate: figures of all stages, curves and the report (artifacts/evaluate).

python pipelines/evaluate.py evaluate.title="my encoder"
"""

from bertline.cli.composition import run_recipe
from bertline.stages.evaluate import Evaluate

if __name__ == "__main__":
    run_recipe(Evaluate(), __file__, __doc__)
