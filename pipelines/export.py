"""export: Hugging Face folders with ONNX files and model cards, checked and registered (artifacts/export).

python pipelines/export.py export.model_name=my-encoder
"""

from bertline.cli.composition import run_recipe
from bertline.stages.export import Export

if __name__ == "__main__":
    run_recipe(Export(), __file__, __doc__)
