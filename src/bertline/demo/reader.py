"""Docstrings of installed Python packages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from bertline.corpus.document import Dropped, SourceDocument
from bertline.corpus.files import InputShard, shards_of
from bertline.corpus.reader import CorpusSettings, ReadingSettings
from bertline.demo.config import PythonDocsConfig
from bertline.demo.docstrings import Cache, ModuleDocs, docstrings_cache, module_batches, read_batch
from bertline.foundation.errors import DataError


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonDocsCorpusConfig(ReadingSettings, CorpusSettings):
    """Docstrings of the packages in `python_docs`: the default corpus, which needs no download."""

    kind: Literal["python_docs"]


@dataclass(frozen=True, slots=True)
class ModulesReader:
    """Reads each module as a document: the prose of its docstrings in source order."""

    packages: PythonDocsConfig
    fails: bool
    """Whether a module that is not text is an error."""
    cache: Cache | None = field(default_factory=docstrings_cache)

    def plan(self, shard_bytes: int, source: str = "") -> tuple[list[InputShard], list[Dropped]]:
        """See `CorpusReader.plan`: shards are files of packages, one package after the other."""
        batches, num_tests = module_batches(self.packages)
        shards = shards_of(source, chain.from_iterable(batches), shard_bytes)
        return shards, [Dropped("documents/test_module", count=num_tests)]

    def read_shard(self, shard: InputShard) -> Iterator[SourceDocument | Dropped]:
        """See `CorpusReader.read_shard`.

        Raises:
            DataError: A module is not text in its encoding, and that is an error.
        """
        for module in read_batch(self.packages, shard.parts, self.cache):
            if not isinstance(module, ModuleDocs):
                name, reason = module
                if reason == "undecodable" and self.fails:
                    raise DataError(
                        f"the module {name} is not text in its encoding. Set corpus.on_undecodable=skip to leave it "
                        "out."
                    )
                yield Dropped(f"documents/{reason}", name)
                continue
            paragraphs: list[str] = []
            for docstring in module.docstrings:
                paragraphs.extend(docstring.prose.paragraphs)
                for reason, count in docstring.prose.dropped.items():
                    yield Dropped(f"paragraphs/{reason}", module.name, count=count)
            split: Literal["train", "validation"] = "validation" if module.held_out else "train"
            yield SourceDocument(module.name, module.group, tuple(paragraphs), split=split)


def all_on_one_side(config: PythonDocsConfig, *, held_out: bool) -> str:
    """Return the message for packages whose modules are all held out, or all pretrained on."""
    side = "is held out" if held_out else "is pretrained on"
    return (
        f"python_docs: everything {side}: with split_seed {config.split_seed}, the names of the packages' groups of "
        f"modules all hash to one side of held_out_fraction ({config.held_out_fraction}). Choose another "
        "python_docs.split_seed, or more packages."
    )
