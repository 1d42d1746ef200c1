"""The examples stage."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import cycle, islice

import numpy as np
import pytest

from bertline.examples.config import StaticMaskingConfig
from bertline.foundation.errors import DataError
from bertline.foundation.files import sha256_of_path
from corpora import documents_in, write_corpus
from staged_runs import MASKING

STATIC = StaticMaskingConfig(kind="static", dupe_factor=3, **MASKING)
LONG = ["bal bar bas bat bel ber bes bet bil bir"] * 3


def test_both_splits_are_made_for_every_length(build, config) -> None:
    built = build(config)
    for length in (16, 32):
        facts = built.manifest["lengths"][str(length)]
        for split in ("train", "validation"):
            examples = built.examples(length, split)
            assert len(examples) == built.headline[f"length_{length}/{split}_examples"] > 10
            assert sum(len(example.input_ids) for example in examples) == built.store(length, split).num_tokens
            assert max(len(example.input_ids) for example in examples) == length
            assert sum(example.next_sentence_label for example in examples) == facts[split]["random_next"]
        assert 3 < facts["unigram_entropy"] < np.log(200)
    assert not (built.folder / "encoded").exists()
    assert not {"word_starts", "swapped_prob", "shuffle_sentences", "unit"} & {
        *built.manifest,
        *built.manifest["masking"],
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"masking": STATIC},
        {"random_next_prob": None},
        {"random_next_prob": 0.0, "swapped_prob": 0.5},
        {"unit": "word"},
        {"unit": "span"},
        {"shuffle_sentences": 1},
        {"languages": True},
    ],
    ids=str,
)
def test_the_bytes_are_the_same_with_one_worker_and_with_several(
    build, config, corpus_folder, tokenizer_folder, tmp_path, changes, monkeypatch
) -> None:
    monkeypatch.setattr("bertline.examples.encoding._BATCH_CHARACTERS", 500)
    changes = dict(changes)
    unit, in_languages = changes.pop("unit", None), changes.pop("languages", False)
    if in_languages:
        documents = documents_in(list(islice(cycle(["a[xx]", "b[yy]", "c[xx]"]), 60)))
        corpus_folder = write_corpus(tmp_path / "languages", documents, documents, source="sources")
    config = replace(config, **changes)
    if unit:
        config = replace(config, masking=replace(config.masking, unit=unit))
    one, four = (build(config, str(workers), corpus=corpus_folder, workers=workers) for workers in (1, 4))
    assert sha256_of_path(one.folder) == sha256_of_path(four.folder)
    assert ("word_starts" in one.manifest) == (unit is not None)
    assert one.manifest.get("shuffle_sentences") == changes.get("shuffle_sentences")


def test_static_masking_makes_train_pairs_dupe_factor_times_and_validation_once(build, config) -> None:
    once, thrice = build(config, "once").headline, build(replace(config, masking=STATIC), "thrice").headline
    assert 2.6 < thrice["length_16/train_examples"] / once["length_16/train_examples"] < 3.4
    assert thrice["length_16/validation_examples"] == once["length_16/validation_examples"]


@pytest.mark.parametrize(
    ("train", "validation", "split"), [([LONG], [LONG, LONG], "train"), ([LONG] * 3, [], "validation")]
)
def test_too_few_documents_are_an_error_before_anything_is_encoded(
    build, config, tmp_path, monkeypatch, train, validation, split
) -> None:
    monkeypatch.setattr("bertline.examples.build.encode_file", lambda *_, **__: pytest.fail("something was encoded"))
    with pytest.raises(DataError, match=rf"documents with text in its {split} split .* need at least 2"):
        build(config, corpus=write_corpus(tmp_path / "few", train, validation))
    assert not (tmp_path / "out").exists()


# Each run is a fork of a process that has imported everything. The alarm kills it wherever it is.
RUNS = """
import os, pathlib, random, signal, sys, time
from bertline.foundation.engine import LocalEngine
from staged_runs import write_stages

def run(folder, dies_after_s):
    if not (child := os.fork()):
        signal.setitimer(signal.ITIMER_REAL, dies_after_s)
        write_stages(folder, LocalEngine(0))
        os._exit(0)
    return os.waitpid(child, 0)[1]

folder, started = pathlib.Path(sys.argv[1]), time.monotonic()
assert run(folder / "undisturbed", 0) == 0
took_s = time.monotonic() - started
killed = [run(folder / "killed", random.uniform(0.1, 0.5) * took_s) for _ in range(6)]
assert signal.SIGALRM in killed and run(folder / "killed", 0) == 0
"""


def test_killed_stages_resume_to_the_same_bytes_and_leave_nothing_behind(tmp_path) -> None:
    """The stages corpus, tokenizer and examples, killed at random moments."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", RUNS, str(tmp_path)], env=environment, check=True, timeout=600)
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    for name in ("corpus", "tokenizer", "examples"):
        assert sha256_of_path(killed / name) == sha256_of_path(undisturbed / name)
    assert {path.relative_to(killed) for path in killed.rglob("*")} == {
        path.relative_to(undisturbed) for path in undisturbed.rglob("*")
    }
