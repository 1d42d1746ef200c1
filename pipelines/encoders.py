"""encoders: the encoder that each task starts from, for DVC to compare (artifacts/encoders).

DVC repeats a sweep if its encoder has changed. Only DVC needs this stage: a sweep run by hand finds its encoder itself.
"""

from bertline.cli.composition import run_recipe
from bertline.stages.encoders import Encoders

if __name__ == "__main__":
    run_recipe(Encoders(), __file__, __doc__)
