"""A tiny encoder folder, and jobs that fine-tune it."""

from __future__ import annotations

from finetuning_fixtures import encoder, inputs, job_of, machine, tokenizer  # noqa: F401
