"""How well a vocabulary fits a text, next to others on the same text; the same inputs give the same survey."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd

from bertline.corpus.document import Split
from bertline.corpus.storage import FORMAT_VERSION, KIND
from bertline.foundation.errors import DataError
from bertline.foundation.formats import count, percent, short_title
from bertline.foundation.manifests import read_manifest
from bertline.tokenization.counting import CorpusText
from bertline.tokenization.fit import Fit, cut_words, fit_of
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.training import train_wordpiece
from bertline.tokenization.vocabulary import CONTINUATION, SPECIAL_TOKENS, Vocabulary, read_vocabulary, resolve_folder

# Approximate amount of text of each split that is looked at.
_CHARACTERS = 20_000_000
# Settings of the vocabularies that are trained to compare with, those of
# `conf/tokenizer/wordpiece.yaml`.
_MIN_FREQUENCY, _MAX_ALPHABET = 2, 1000
# Shares of tokens that another vocabulary saves: below the first it does not pay, from the second
# on it does.
_LITTLE, _MUCH = 0.03, 0.10


@dataclass(frozen=True, kw_only=True, slots=True)
class VocabularySurvey:
    """A vocabulary and what it is compared with, on the held-out text unless something else is said."""

    split: Split
    """Split that the figures are of: validation, or train where nothing is held out."""
    own: Fit
    by_source: dict[str, list[Fit]]
    """Source and language (`label_of`) to the surveyed vocabulary and the named ones on its text; of a corpus of one
    source, its kind to the surveyed one."""
    trained: dict[str, Fit]
    """Vocabularies trained on the train text, by what their size is that of: `own` (if the surveyed one was not
    trained), or the name of a given one."""
    given: list[Fit]
    """Vocabularies named to compare with."""
    shared: dict[str, float]
    """Name of each vocabulary to the share of its tokens that the surveyed one has too."""
    cut: list[tuple[str, int, list[str]]]
    """Words that cost most tokens beyond one each, with their counts and tokens."""
    num_unused: int
    """Tokens that never occur in the train text; special and `[unused]` ones are not counted."""

    @property
    def conclusion(self) -> str:
        """Whether the text needs a vocabulary of its own, from the tokens that it takes with one of the same size.

        Reference: Beltagy et al. 2019, arXiv 1903.10676 (SciBERT), section 4: 42 % of tokens in common with BERT's
        vocabulary, and 0.6 points of F1 from a vocabulary of its own.
        """
        answers = [_answer(given, self.trained[given.name]) for given in self.given if given.name in self.trained]
        if "own" in self.trained:
            answers.insert(0, _answer(self.own, self.trained["own"]))
        nothing = "Nothing was named to compare with: tokenizer.compare=[/path/to/checkpoint] puts it next to this one."
        if self.given and not answers:
            names = ", ".join(one.name for one in self.given)
            return (
                f"The text has too few words for a vocabulary as large as that of {names}: it cannot have one of its "
                "own."
            )
        return " ".join(answers) or nothing


def _answer(given: Fit, here: Fit) -> str:
    saved = 1 - here.tokens_per_word / given.tokens_per_word
    amount = f"{percent(abs(saved))} {'fewer' if saved >= 0 else 'more'}"
    size = "as large" if here.size == given.size else f"of the {count(here.size)} tokens that it supports"
    answer = f"With a vocabulary {size}, trained on this text, it takes {amount} tokens than with {given.name}"
    if saved >= _MUCH:
        return f"{answer}: one of its own pays for an encoder that is trained from scratch."
    if saved >= _LITTLE:
        return f"{answer}: one of its own helps a little; for a checkpoint, new words (tokenizer=extended) may do."
    return f"{answer}: it needs none of its own."


def survey_vocabulary(
    folder: Path, corpus: CorpusText, *, compare: Sequence[str] = (), was_trained: bool = True
) -> VocabularySurvey:
    """Measure the vocabulary of a tokenizer folder on a corpus, compared with others, which are WordPiece.

    `compare` has folders, `vocab.txt` files or hub names. Unless it was trained on this corpus (`was_trained`), it is
    also compared with one of its size that is.

    Raises:
        DataError: A named vocabulary cannot be read.
    """
    tokenizer, own = Tokenizer.load(folder), "this vocabulary"
    manifest = read_manifest(corpus.folder, kind=KIND, format_version=FORMAT_VERSION)
    split: Split = "validation" if corpus.num_characters("validation") else "train"
    several = len(manifest.get("sources", {"parts": {}})["parts"]) > 1

    @cache  # texts are counted once for each normalisation
    def held_out(normalization: Vocabulary) -> dict[str, Counter[str]]:
        words = corpus.words(split, normalization, characters=_CHARACTERS, by_label=several)
        return words if several else {manifest["source"]: words[""]}

    def cut(one: Tokenizer) -> pd.DataFrame:
        return cut_words(one, held_out(dataclasses.replace(one.normalization, tokens=())))

    others = {short_title(name): Tokenizer(vocabulary_named(name)) for name in compare}
    train = corpus.words("train", tokenizer.normalization, characters=_CHARACTERS)[""]
    sizes = {} if was_trained else {"own": tokenizer.vocab_size}
    trained = _trained(tokenizer, train, sizes | {name: one.vocab_size for name, one in others.items()})
    frames = {own: cut(tokenizer), **{name: cut(one) for name, one in others.items()}}
    text = frames[own]
    sources: list[str] = list(text["part"].unique())
    shown = {own: tokenizer, **(others if several else {})}

    def fits(source: str) -> list[Fit]:
        return [fit_of(name, one, frames[name][frames[name]["part"] == source]) for name, one in shown.items()]

    costs = text["times"] * (text["ids"].str.len() - 1)
    words = text.assign(cost=costs).groupby("word", as_index=False).agg({"times": "sum", "cost": "sum", "ids": "first"})
    words = words[words["cost"] > 0].sort_values(["cost", "word"], ascending=[False, True]).head(15)
    ordinary, counts = set(_ordinary(tokenizer)), fit_of("", tokenizer, cut_words(tokenizer, {"": train})).counts
    unused = [token for token, number in zip(tokenizer.vocab, counts, strict=True) if token in ordinary and not number]
    return VocabularySurvey(
        split=split,
        own=fit_of(own, tokenizer, text),
        by_source={source: fits(source) for source in sources},
        trained={name: fit_of(title, one, cut(one)) for name, (title, one) in trained.items()},
        given=[fit_of(name, one, frames[name]) for name, one in others.items()],
        shared={name: _shared(one, tokenizer) for name, one in (*trained.values(), *others.items())},
        cut=[(word, times, list(tokenizer.tokens(ids))) for word, times, _, ids in words.itertuples(index=False)],
        num_unused=len(unused),
    )


def vocabulary_named(name: str) -> Vocabulary:
    """Return the vocabulary of a folder, a `vocab.txt` or a hub name that the configuration gives to compare with."""
    path = Path(name).expanduser()
    try:
        return read_vocabulary(path if path.is_file() else resolve_folder(name))
    except DataError as error:
        raise DataError(f"tokenizer.compare names {name}, which cannot be compared with: {error}") from error


def _trained(
    tokenizer: Tokenizer, words: Mapping[str, int], sizes: Mapping[str, int]
) -> dict[str, tuple[str, Tokenizer]]:
    """Train a vocabulary of each size, by what it is compared with: `own`, or another's name.

    The largest is trained; a smaller vocabulary is the beginning of a larger one.
    """
    if not sizes:
        return {}
    here = "trained here" if tokenizer.is_wordpiece else "WordPiece trained here"
    tokens = train_wordpiece(
        words,
        vocab_size=max(sizes.values()),
        min_frequency=_MIN_FREQUENCY,
        max_alphabet=min(_MAX_ALPHABET, min(sizes.values()) // 2),
        or_fewer=True,
    )
    alphabet = sum(len(token.removeprefix(CONTINUATION)) == 1 for token in tokens) + len(SPECIAL_TOKENS)
    found = {}
    for name, wanted in sizes.items():
        title = f"{here}, as large" if name == "own" else f"{here}, as large as {name}"
        if len(tokens) < wanted:
            title += " (the text has too few words)"
        if min(wanted, len(tokens)) > alphabet:
            plain = dataclasses.replace(tokenizer.normalization, tokens=tokens[:wanted], unsplit=())
            found[name] = (title, Tokenizer(plain))
    return found


def _shared(other: Tokenizer, tokenizer: Tokenizer) -> float:
    own, theirs = set(tokenizer.vocab), _ordinary(other)
    if not tokenizer.is_wordpiece:  # its tokens begin a word with a mark of the space before it, not continue one so
        own, theirs = {token.lstrip("Ġ▁") for token in own}, [token.removeprefix(CONTINUATION) for token in theirs]
    return sum(token in own for token in theirs) / max(1, len(theirs))


def _ordinary(tokenizer: Tokenizer) -> list[str]:
    return [
        token
        for index, token in enumerate(tokenizer.vocab)
        if index not in tokenizer.special_ids and not (token.startswith("[") and token.endswith("]") and len(token) > 2)
    ]
