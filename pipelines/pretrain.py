"""pretrain: the encoder with the heads of its objective, as a folder that transformers can load (artifacts/pretrain).

    python pipelines/pretrain.py model=small pretrain.max_steps=500
    python pipelines/pretrain.py runtime.profile=true      # where the time of a step goes

`bertline.pretraining.run` is the page to read: it builds tokenizer, model, probes, data and trainer, then trains, in
runs/pretrain/FINGERPRINT. After a stop or a kill, the same command resumes. With experiment=finetune nothing is
trained: the checkpoint of pretrain.start_from is read, checked and written as it is.
"""

from bertline.cli.composition import run_recipe
from bertline.stages.pretrain import Pretrain

if __name__ == "__main__":
    run_recipe(Pretrain(), __file__, __doc__)
