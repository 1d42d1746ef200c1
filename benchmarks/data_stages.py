"""Measure the data stages: text to examples, encoding, and the training of a vocabulary.

    python benchmarks/data_stages.py --corpus FOLDER --keep    # WikiExtractor files, or plain text
    python benchmarks/data_stages.py                           # the documentation of installed packages

The last line is JSON:

- `mb_per_s_per_core`: UTF-8 bytes of the input by wall time and process, from reading the text to pairs of 128 tokens:
  the stages `corpus` (with exact duplicates) and `examples`. The vocabulary is given.
- `tokenize_ratio`: processor time of `encode_batch` of the tokenizers library over sentences, by ours; all ids of the
  train split, `tokens_with_equal_ids`, are compared and are the same.
- `vocabulary_ratio`: wall time of our training of a vocabulary by that of the library's trainer, each with as many
  threads or processes as `--workers` says.
- `mb_per_processor_s` and `vocabulary_processor_ratio`: the same by processor time, of all processes, which other
  work on the machine disturbs less.
- `peak_memory_bytes` of the stages; each part runs in a process of its own.
- `near_duplicate_mb_per_s`, `near_duplicate_recall`, `near_duplicate_false`, where benchmarks/near_duplicates.py is
  there to measure them.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import repository_source  # noqa: F401

from bertline.corpus.build import build_corpus
from bertline.corpus.files import find_files
from bertline.corpus.reader import documents_of
from bertline.corpus.readers.text import TextReader
from bertline.corpus.readers.wikiextractor import WikiExtractorReader
from bertline.corpus.registry import CORPORA, CorpusConfig, readers_of
from bertline.corpus.sentences.learned import LearnedConfig
from bertline.corpus.storage import read_documents
from bertline.demo.config import PackageConfig, PythonDocsConfig
from bertline.demo.docstrings import PythonDocsCorpusConfig
from bertline.examples.build import build_examples
from bertline.examples.config import DynamicMaskingConfig, ExamplesConfig
from bertline.examples.store import token_id_dtype
from bertline.foundation.engine import LocalEngine
from bertline.foundation.manifests import versions_of
from bertline.foundation.parallel import batches, processor_name
from bertline.tokenization.counting import CorpusText
from bertline.tokenization.storage import save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer, bert_normalizer, sentence_encoder
from bertline.tokenization.training import train_wordpiece
from bertline.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

_PLAIN = Vocabulary(tokens=(), lowercase=True)
_PACKAGES = tuple(PackageConfig(module=name, distribution=name) for name in ("numpy", "scipy"))
_PYTHON_DOCS = PythonDocsConfig(packages=_PACKAGES, held_out_fraction=0.1, split_seed=0)
_EXAMPLES = ExamplesConfig(
    seed=0,
    lengths=(128,),
    random_next_prob=0.5,
    short_sequence_prob=0.1,
    shard_sequences=100_000,
    masking=DynamicMaskingConfig(
        kind="dynamic", mask_prob=0.15, replace_with_mask_prob=0.8, replace_with_random_prob=0.1
    ),
)


def corpus_config(folder: str | None) -> CorpusConfig:
    """Return the corpus of a folder, which is told from its first file; of installed packages without one."""
    settings: dict[str, Any] = {
        "validation_fraction": 0.05,
        "split_seed": 0,
        "deduplicate": "document",
        "min_document_characters": 100,
        "on_undecodable": "skip",
    }
    if folder is None:
        rules = LearnedConfig(kind="learned", headings="stay", abbreviations=())
        return PythonDocsCorpusConfig(kind="python_docs", sentences=rules, **settings)
    settings["sentences"] = LearnedConfig(kind="learned", headings="stay", abbreviations=())
    first = _bytes_of(Path(find_files(folder, ())[0][0].path))
    if first.startswith(b"<doc "):
        return CORPORA[WikiExtractorReader](kind="wikiextractor", path=folder, encoding="utf-8", **settings)
    plain: dict[str, Any] = {"document": "file", "document_start": None, "encoding": "utf-8", "on_markup": "fail"}
    return CORPORA[TextReader](kind="text", path=folder, **plain, **settings)


def input_bytes(config: CorpusConfig) -> int:
    """Return the UTF-8 bytes of the input: of unpacked files, or of the documentation's paragraphs."""
    if isinstance(config, PythonDocsCorpusConfig):
        documents = documents_of(readers_of(config, _PYTHON_DOCS)[""])
        return sum(len(text.encode()) for document in documents for text in document.paragraphs)
    suffixes: tuple[str, ...] = (".txt",) if isinstance(config, TextReader) else ()
    assert isinstance(config, TextReader | WikiExtractorReader)
    return sum(len(_bytes_of(Path(part.path))) for part in find_files(config.path, suffixes)[0])


def _bytes_of(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def measured_stages(config: CorpusConfig, folder: Path, vocab_size: int, workers: int) -> dict[str, float]:
    """Build corpus and examples in `folder`; return wall times and the peak memory of this process, in bytes."""
    started, started_processor = time.perf_counter(), _processor_s()
    build_corpus(config, _PYTHON_DOCS, folder / "corpus", engine=LocalEngine(workers), work=folder / "shards")
    corpus_s, processor_s = time.perf_counter() - started, _processor_s() - started_processor
    counts = _words(folder, workers)
    tokens = train_wordpiece(counts, vocab_size=vocab_size, min_frequency=2, max_alphabet=1000)
    (folder / "tokenizer").mkdir()
    save_tokenizer(Tokenizer(Vocabulary(tokens=tokens, lowercase=True)), folder / "tokenizer")
    started, started_processor = time.perf_counter(), _processor_s()
    build_examples(
        _EXAMPLES,
        folder / "tokenizer",
        folder / "corpus",
        folder / "examples",
        engine=LocalEngine(workers),
        work=folder / "work",
    )
    examples_s = time.perf_counter() - started
    processor_s += _processor_s() - started_processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"corpus_s": corpus_s, "examples_s": examples_s, "processor_s": processor_s, "peak_memory_bytes": peak}


def _words(folder: Path, workers: int) -> Counter[str]:
    """Return the words of the train split with their counts."""
    with tempfile.TemporaryDirectory() as work:
        return CorpusText(folder / "corpus", LocalEngine(workers), Path(work)).words(
            "train", _PLAIN, characters=1 << 62
        )[""]


def _processor_s() -> float:
    """Return the processor time of this process and of those that it started and that have ended, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measured_encoding(folder: Path) -> dict[str, float]:
    """Encode the train split both ways; return processor times, in seconds, and how many ids were compared.

    Raises:
        AssertionError: The ids differ.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = Tokenizer.load(folder / "tokenizer")
    encoder = sentence_encoder(tokenizer, token_id_dtype(tokenizer.vocab_size))
    ours = theirs = 0.0
    compared = 0
    for batch in batches(_sentences(folder), size=len, most=1_000_000):
        started = time.process_time()
        ids, lengths = encoder(batch)
        ours += time.process_time() - started
        started = time.process_time()
        expected = tokenizer.encode_literally(batch)
        theirs += time.process_time() - started
        assert lengths.tolist() == [len(one) for one in expected]
        assert ids.tolist() == [index for one in expected for index in one]
        compared += len(ids)
    return {"ours_s": ours, "library_s": theirs, "compared": compared}


def measured_vocabulary(folder: Path, vocab_size: int, workers: int, *, library: bool) -> tuple[float, float]:
    """Train a vocabulary on the train split, ours or the library's; return wall and processor time in seconds."""
    started, started_processor = time.perf_counter(), _processor_s()
    if not library:
        counts = _words(folder, workers)
        train_wordpiece(counts, vocab_size=vocab_size, min_frequency=2, max_alphabet=1000)
        return time.perf_counter() - started, _processor_s() - started_processor
    os.environ["RAYON_NUM_THREADS"] = str(workers)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if workers > 1 else "false"
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers

    peer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    peer.normalizer, peer.pre_tokenizer = bert_normalizer(_PLAIN), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        limit_alphabet=1000,
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    peer.train_from_iterator(_sentences(folder), trainer)
    return time.perf_counter() - started, _processor_s() - started_processor


def near_duplicates(folder: Path) -> dict[str, float]:
    """Return the figures of benchmarks/near_duplicates.py; none where it is not there."""
    if importlib.util.find_spec("near_duplicates") is None:
        return {}
    from near_duplicates import near_duplicate_figures

    figures = near_duplicate_figures([document.sentences for document in read_documents(folder / "corpus", "train")])
    return {name: value for name, value in figures.items() if name.startswith("near_duplicate_")}


def _sentences(folder: Path) -> Iterator[str]:
    for document in read_documents(folder / "corpus", "train"):
        yield from document.sentences


def _alone(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call the function in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **named).result()


def measured(config: CorpusConfig, vocab_size: int, workers: int) -> dict[str, Any]:
    """Return all figures of a corpus."""
    size = input_bytes(config)
    with tempfile.TemporaryDirectory(prefix="bertline-data-stages-") as name:
        folder = Path(name)
        stages = _alone(measured_stages, config, folder, vocab_size, workers)
        encoding = _alone(measured_encoding, folder)
        ours, library = (
            _alone(measured_vocabulary, folder, vocab_size, workers, library=library) for library in (False, True)
        )
        duplicates = _alone(near_duplicates, folder)
    return {
        "mb_per_s_per_core": size / 1e6 / (stages["corpus_s"] + stages["examples_s"]) / workers,
        "tokenize_ratio": encoding["library_s"] / encoding["ours_s"],
        "tokens_with_equal_ids": encoding["compared"],
        "vocabulary_ratio": ours[0] / library[0],
        "mb_per_processor_s": size / 1e6 / stages["processor_s"],
        "vocabulary_processor_ratio": ours[1] / library[1],
        **duplicates,
        "peak_memory_bytes": stages["peak_memory_bytes"],
        "input_bytes": size,
        **{name: seconds for name, seconds in stages.items() if name.endswith("_s")},
        "vocabulary_s": ours[0],
        "library_vocabulary_s": library[0],
    }


def main() -> None:
    """Measure, record and print."""
    from records import Record, add_record_arguments  # here: the processes that measure need no torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", metavar="FOLDER", help="text; without it, documentation of installed packages")
    parser.add_argument("--vocab-size", type=int, help="tokens; default: 30,522, without --corpus 8,192")
    parser.add_argument("--workers", type=int, default=1, help="processes, and threads of the library's trainer")
    add_record_arguments(parser)
    arguments = parser.parse_args()
    config = corpus_config(arguments.corpus)
    vocab_size = arguments.vocab_size or (30_522 if arguments.corpus else 8192)
    figures = {
        "device": processor_name(),
        "corpus": config.kind,
        "vocab_size": vocab_size,
        **measured(config, vocab_size, arguments.workers),
    }
    if arguments.keep:
        Record(
            benchmark="data_stages",
            model=Path(arguments.corpus).resolve().name if arguments.corpus else "python-docs",
            seq_len=_EXAMPLES.lengths[0],
            variant="" if arguments.workers == 1 else f"workers-{arguments.workers}",
            figures=figures,
            versions=versions_of("tokenizers", "numpy", "pyarrow"),
            arguments=arguments,
            not_recorded=["corpus"],
        ).write(Path(arguments.keep), commit=arguments.commit)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
