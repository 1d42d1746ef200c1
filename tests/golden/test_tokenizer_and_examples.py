"""Vocabularies and examples stay what they were in every supported version of Python, numpy and tokenizers.

`tokenizer_and_examples.json` was written by the script of that name, which holds the text, and read through against
that text: the merges, the pairs and their labels, the masks.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from bertline.foundation.files import read_json

SCRIPT = Path(__file__).with_name("tokenizer_and_examples.py")


def test_vocabulary_and_examples_are_those_recorded() -> None:
    spec = importlib.util.spec_from_file_location("tokenizer_and_examples", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made, recorded = module.made(), read_json(module.GOLDEN)
    assert made.keys() == recorded.keys()
    for name, value in recorded.items():
        assert made[name] == value, name
