"""A tiny encoder folder with its tokenizer, and jobs that fine-tune it."""

from finetuning_fixtures import encoder, inputs, job_of, machine, tokenizer  # noqa: F401
