"""The vocabulary page: does this vocabulary suit the text, and would another one suit it better?"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertline.corpus.document import Split
from bertline.corpus.sources import language_of
from bertline.corpus.storage import FORMAT_VERSION, KIND
from bertline.evaluation.charts import Series, line_chart
from bertline.evaluation.corpus_page import script_of
from bertline.evaluation.html import (
    Strong,
    figure,
    framed,
    number_of,
    paragraph,
    section,
    side_by_side,
    table,
    tiles,
    verdict,
)
from bertline.foundation.errors import DataError
from bertline.foundation.files import write_atomically
from bertline.foundation.formats import count, percent
from bertline.foundation.manifests import read_manifest
from bertline.tokenization.counting import CorpusText
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import CONTINUATION, SPECIAL_TOKENS, Vocabulary, read_vocabulary, resolve_folder
from bertline.tokenization.wordpiece import train_wordpiece

# How well a vocabulary fits a text, next to others on the same text; the same inputs give the same survey.

_CHARACTERS = 20_000_000
"""Approximate amount of text of each split that is looked at."""
NUM_LONGEST, NUM_RAREST, NUM_CUT = 10, 40, 15
_MIN_FREQUENCY, _MAX_ALPHABET = 2, 1000
"""Settings of the vocabularies that are trained to compare with, those of `conf/tokenizer/wordpiece.yaml`."""
_LEAST_SHARE_OF_SCRIPT = 0.001
_BATCH_WORDS = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """How a vocabulary cuts a text; words are weighted by their counts."""

    name: str
    size: int
    words: int
    tokens: int
    whole: int
    """Words that are one known token."""
    unknown: int
    """Words that become [UNK]."""
    unknown_character_rate: float
    """Share of the characters that are in these."""
    counts: npt.NDArray[np.int64]
    """[size] count of each token in the text."""

    @property
    def tokens_per_word(self) -> float:
        """Return the mean number of tokens of a word, also called fertility."""
        return self.tokens / max(1, self.words)

    @property
    def unknown_rate(self) -> float:
        """Return the share of words that become [UNK]."""
        return self.unknown / max(1, self.words)

    @property
    def continued_rate(self) -> float:
        """Return the share of words that are cut into several tokens."""
        return (self.words - self.whole - self.unknown) / max(1, self.words)

    @property
    def num_used(self) -> int:
        """Return the number of tokens that occur in the text."""
        return int(np.count_nonzero(self.counts))

    def coverage(self) -> list[tuple[float, float]]:
        """Return the share of the text's tokens that the most frequent 1, 2, 4, ... tokens make up."""
        sums = np.sort(self.counts)[::-1].cumsum() / max(1, self.tokens)
        numbers = [*(2**power for power in range(self.num_used.bit_length())), self.num_used]
        return [(float(number), float(sums[number - 1])) for number in dict.fromkeys(numbers) if number]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """A word that is cut, with its count and tokens."""

    word: str
    count: int
    tokens: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class VocabularySurvey:
    """A vocabulary and what it is compared with, on the held-out text unless something else is said."""

    split: Split
    """Split that the figures are of: validation, or train where nothing is held out."""
    own: Fit
    was_trained: bool
    """Whether the surveyed vocabulary is a WordPiece trained on this corpus, as those of `trained` are."""
    by_source: dict[str, list[Fit]]
    """Source and language (`corpus.sources.label_of`) to the surveyed vocabulary and the named ones on its text; of a
    corpus of one source, its kind to the surveyed one."""
    by_language: dict[str, list[Fit]]
    """The same by language, where several sources have one; otherwise empty."""
    by_script: dict[str, Fit]
    """Words by the script of their first letter, those of some share."""
    trained: dict[str, Fit]
    """Vocabularies trained on the train text, by what their size is that of: `half`, `own` (if the surveyed one was not
    trained), `twice`, or the name of a given one."""
    given: list[Fit]
    """Vocabularies named to compare with."""
    shared: dict[str, float]
    """Name of each vocabulary to the share of its tokens that the surveyed one has too."""
    cut: list[Cut]
    """Words that cost most tokens beyond one each."""
    longest: list[tuple[str, int]]
    """Longest tokens with their counts in the train text."""
    rarest: list[tuple[str, int]]
    """Tokens that are seldom in the train text, with their counts, the rarest first."""
    num_unused: int
    """Tokens that never occur in the train text; special and `[unused]` ones are not counted."""


def survey_vocabulary(
    folder: Path, corpus: CorpusText, *, compare: Sequence[str] = (), was_trained: bool = True
) -> VocabularySurvey:
    """Measure the vocabulary of a tokenizer folder on a corpus, beside others, which are WordPiece.

    Args:
        folder: The tokenizer artifact.
        corpus: The text of the corpus artifact.
        compare: Folders, `vocab.txt` files or hub names of other vocabularies.
        was_trained: Whether the vocabulary was trained on this corpus, so that a WordPiece's first half is the
            vocabulary of half the size.

    Raises:
        DataError: A named vocabulary cannot be read.
    """
    tokenizer = Tokenizer.load(folder)
    manifest = read_manifest(corpus.folder, kind=KIND, format_version=FORMAT_VERSION)
    split: Split = "validation" if corpus.num_characters("validation") else "train"
    others = {short_name(name): Tokenizer(vocabulary_named(name)) for name in compare}
    text = _Text(corpus, list(manifest.get("sources", {"parts": {}})["parts"]), split)
    train, held_out = text.words(tokenizer.normalization, "train"), text.words(tokenizer.normalization, split)
    trained = _trained(tokenizer, train, others, was_trained=was_trained)
    own = fit("this vocabulary", tokenizer, held_out)
    by_source, by_language = text.fits({own.name: tokenizer, **others})
    return VocabularySurvey(
        split=split,
        own=own,
        was_trained=was_trained and tokenizer.is_wordpiece,
        by_source=by_source or {manifest["source"]: [own]},
        by_language=by_language,
        by_script=_by_script(tokenizer, held_out),
        trained={name: fit(title, one, held_out) for name, (title, one) in trained.items()},
        given=[fit(name, one, text.words(one.vocabulary, split)) for name, one in others.items()],
        shared={name: _shared(one, tokenizer) for name, one in (*trained.values(), *others.items())},
        cut=most_cut(tokenizer, held_out),
        **_entries(tokenizer, fit("", tokenizer, train).counts),
    )


class _Text:
    """Words of a corpus, each text counted once for each normalisation; those of `split` also by source."""

    def __init__(self, corpus: CorpusText, labels: list[str], split: Split) -> None:
        self._corpus = corpus
        self._labels = labels if len(labels) > 1 else []
        self._split = split
        self._counted: dict[Vocabulary, Counter[str]] = {}
        self._by_label: dict[Vocabulary, dict[str, Counter[str]]] = {}

    def words(self, vocabulary: Vocabulary, split: Split) -> Counter[str]:
        """Return the words of a split as a vocabulary normalises them."""
        plain = dataclasses.replace(vocabulary, tokens=(split,))
        if plain not in self._counted:
            self._counted[plain] = (
                _together(self._parts(vocabulary).values())
                if self._labels and split == self._split
                else self._corpus.words(split, vocabulary, characters=_CHARACTERS)[""]
            )
        return self._counted[plain]

    def fits(self, tokenizers: Mapping[str, Tokenizer]) -> tuple[dict[str, list[Fit]], dict[str, list[Fit]]]:
        """Measure vocabularies on each source and language with text, and on each language that several sources have.

        Both are empty for a corpus of one source.
        """
        found: list[dict[str, list[Fit]]] = [{}, {}]
        languages = {language for label in self._labels if (language := language_of(label)) is not None}
        for name, one in tokenizers.items() if self._labels else ():
            parts = self._parts(one.normalization)
            by_language = {
                language: _together(words for label, words in parts.items() if language_of(label) == language)
                for language in sorted(languages)
                if sum(language_of(label) == language for label in parts) > 1
            }
            for fits, texts in zip(found, (parts, by_language), strict=True):
                for label, words in texts.items():
                    fits.setdefault(label, []).append(fit(name, one, words))
        return found[0], found[1]

    def _parts(self, vocabulary: Vocabulary) -> dict[str, Counter[str]]:
        plain = dataclasses.replace(vocabulary, tokens=())
        if plain not in self._by_label:
            self._by_label[plain] = self._corpus.words(self._split, vocabulary, characters=_CHARACTERS, by_label=True)
        return self._by_label[plain]


def _together(counts: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return total


def vocabulary_named(name: str) -> Vocabulary:
    """Return the vocabulary of a folder, a `vocab.txt` or a hub name that the configuration gives to compare with.

    Raises:
        DataError: It cannot be read.
    """
    path = Path(name).expanduser()
    try:
        return read_vocabulary(path if path.is_file() else resolve_folder(name, None))
    except DataError as error:
        raise DataError(f"tokenizer.compare names {name}, which cannot be compared with: {error}") from error


def short_name(name: str) -> str:
    """Return the last parts of a path, or a hub name as it is.

    Example:
        >>> short_name("/home/ada/models/minilm"), short_name("google-bert/bert-base-uncased")
        ('models/minilm', 'google-bert/bert-base-uncased')
    """
    return "/".join(part for part in Path(name).parts[-2:] if part not in ("/", "~"))


def fit(name: str, tokenizer: Tokenizer, word_counts: Mapping[str, int]) -> Fit:
    """Measure a vocabulary on a text, given as words with counts."""
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    whole = unknown = lost = 0
    for word, ids in _encoded(tokenizer, word_counts):
        number = word_counts[word]
        np.add.at(counts, ids, number)
        if tokenizer.unk_id in ids:
            unknown += number
            lost += number * len(word)
        elif len(ids) == 1:
            whole += number
    return Fit(
        name=name,
        size=tokenizer.vocab_size,
        words=sum(word_counts.values()),
        tokens=int(counts.sum()),
        whole=whole,
        unknown=unknown,
        unknown_character_rate=lost / max(1, sum(number * len(word) for word, number in word_counts.items())),
        counts=counts,
    )


def _encoded(tokenizer: Tokenizer, word_counts: Mapping[str, int]) -> list[tuple[str, list[int]]]:
    words, ids = sorted(word_counts), []
    for start in range(0, len(words), _BATCH_WORDS):
        ids += tokenizer.encode_words(words[start : start + _BATCH_WORDS])
    return list(zip(words, ids, strict=True))


def most_cut(tokenizer: Tokenizer, word_counts: Mapping[str, int], number: int = NUM_CUT) -> list[Cut]:
    """Return the words that cost most tokens: their count times their tokens beyond the first."""
    entries = [(word_counts[word] * (len(ids) - 1), word, ids) for word, ids in _encoded(tokenizer, word_counts)]
    entries = sorted((entry for entry in entries if entry[0]), key=lambda entry: (-entry[0], entry[1]))
    return [
        Cut(word=word, count=word_counts[word], tokens=tuple(tokenizer.tokens(ids)))
        for _, word, ids in entries[:number]
    ]


def _trained(
    tokenizer: Tokenizer, words: Mapping[str, int], others: Mapping[str, Tokenizer], *, was_trained: bool
) -> dict[str, tuple[str, Tokenizer]]:
    """Train vocabularies of other sizes, by what they are compared with: `half`, `own`, `twice`, or another's name.

    The largest is trained; a smaller vocabulary is the beginning of a larger one.
    """
    size = tokenizer.vocab_size
    sizes = {"half": size // 2, "own": size, "twice": 2 * size, **{name: o.vocab_size for name, o in others.items()}}
    here = "trained here" if tokenizer.is_wordpiece else "WordPiece trained here"
    titles = {"half": f"{here}, half as large", "own": f"{here}, as large", "twice": f"{here}, twice as large"}
    if was_trained:
        del sizes["own"]
    tokens = train_wordpiece(
        words,
        vocab_size=max(sizes.values()),
        min_frequency=_MIN_FREQUENCY,
        max_alphabet=min(_MAX_ALPHABET, size // 2),
        or_fewer=True,
    )
    alphabet = sum(len(token.removeprefix(CONTINUATION)) == 1 for token in tokens) + len(SPECIAL_TOKENS)
    found = {}
    for name, wanted in sizes.items():
        title = titles.get(name, f"{here}, as large as {name}")
        if len(tokens) < wanted:
            title += " (the text has too few words)"
        if min(wanted, len(tokens)) > alphabet and (len(tokens) > size or name == "half"):
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


def _by_script(tokenizer: Tokenizer, word_counts: Mapping[str, int]) -> dict[str, Fit]:
    by_script: dict[str, dict[str, int]] = {}
    for word, number in word_counts.items():
        if word[0].isalpha():
            by_script.setdefault(script_of(word[0]), {})[word] = number
    least = _LEAST_SHARE_OF_SCRIPT * sum(word_counts.values())
    frequent = {name: words for name, words in by_script.items() if sum(words.values()) >= least}
    ranked = sorted(frequent, key=lambda name: (-sum(frequent[name].values()), name))
    return {name: fit(name.title(), tokenizer, frequent[name]) for name in ranked}


def _entries(tokenizer: Tokenizer, counts: npt.NDArray[np.int64]) -> dict[str, Any]:
    ordinary = set(_ordinary(tokenizer))
    known = {token: int(number) for token, number in zip(tokenizer.vocab, counts, strict=True) if token in ordinary}
    # Single characters are there for any text, so that they are rare says nothing.
    learned = [token for token in known if len(token.removeprefix(CONTINUATION)) > 1]
    longest = sorted(learned, key=lambda token: (-len(token.removeprefix(CONTINUATION)), token))[:NUM_LONGEST]
    rarest = sorted((token for token in learned if known[token]), key=lambda token: (known[token], token))
    return {
        "longest": [(token, known[token]) for token in longest],
        "rarest": [(token, known[token]) for token in rarest[:NUM_RAREST]],
        "num_unused": sum(number == 0 for number in known.values()),
    }


_COLOURS = ("c0", "c1", "c2", "c4", "c5", "c6", "c7", "c8", "c9")
_LITTLE, _MUCH = 0.03, 0.10
"""Shares of tokens that another vocabulary saves: below the first it does not pay, from the second on it does."""
_LONG_SEQUENCE = 512
_ROWS = 10


def write_vocabulary_page(path: Path, survey: VocabularySurvey) -> None:
    """Write the page as one file without other files; the same survey gives the same bytes."""
    sections = [_others(survey), _coverage(survey), _parts(survey), _cut(survey), _table_entries(survey)]
    page = framed(
        sections,
        title="How the vocabulary fits the text",
        kicker="Vocabulary",
        summary=_summary(survey),
        footer="Made by bertline from the artifact of the stage tokenizer. It contains words of the text: share it as "
        "you would share that.",
    )
    write_atomically(path, page)


def _summary(survey: VocabularySurvey) -> str:
    own, held_out = survey.own, survey.split == "validation"
    text = "held-out text" if held_out else "the train text (nothing is held out)"
    note = f"Measured on {count(own.words)} words of {text}; marks count as words, as they do for BERT."
    return paragraph(note, "lead") + tiles(
        [
            (f"{own.tokens_per_word:.3f}", "tokens a word", "1 would be a token for every word; English has about 1.2"),
            (percent(own.continued_rate), "words cut into several tokens", "the model has to put them together"),
            (
                _small(own.unknown_rate),
                "unknown words",
                f"they become [UNK], and what they say is lost: {_small(own.unknown_character_rate)} of the characters",
            ),
            (count(own.size), "tokens", f"{count(survey.num_unused)} of them never occur in the train text"),
        ]
    )


def conclusion(survey: VocabularySurvey) -> str:
    """Answer whether the text needs a vocabulary of its own, from the tokens that it takes with one of the same size.

    References:
        Beltagy et al. 2019, arXiv 1903.10676 (SciBERT), section 4: 42 % of tokens in common with BERT's vocabulary, and
        0.6 points of F1 from a vocabulary of its own.
    """
    answers = [_answer(given, survey.trained[given.name]) for given in survey.given if given.name in survey.trained]
    if "own" in survey.trained:
        answers.insert(0, _answer(survey.own, survey.trained["own"]))
    nothing = "Nothing was named to compare with: tokenizer.compare=[/path/to/checkpoint] puts it next to this one."
    if survey.given and not answers:
        names = ", ".join(one.name for one in survey.given)
        return (
            f"The text has too few words for a vocabulary as large as that of {names}: it cannot have one of its own."
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


def _others(survey: VocabularySurvey) -> str:
    rows = [_row(survey, one) for one in (survey.own, *survey.trained.values(), *survey.given)]
    head = ["vocabulary", "tokens", "tokens a word", "words cut", "unknown", "words in 512 tokens", "also in this one"]
    explained = (
        "All on the same text. A sequence of 512 tokens holds fewer words if words are cut. SciBERT has 42 % of its "
        "tokens in common with BERT, and gained 0.6 points of F1 on average from a vocabulary of its own."
    )
    return section(
        "others",
        "Does the text need a vocabulary of its own?",
        verdict(conclusion(survey), good=bool(survey.given)),
        table(head, rows),
        paragraph(explained, "soft"),
    )


def _unknown(one: Fit) -> str:
    of_characters = f" ({_small(one.unknown_character_rate)} of characters)" if one.unknown else ""
    return _small(one.unknown_rate) + of_characters


def _row(survey: VocabularySurvey, one: Fit) -> list[str]:
    name = Strong(one.name) if one is survey.own else one.name
    cells = [f"{one.tokens_per_word:.3f}", percent(one.continued_rate), _unknown(one)]
    words = _LONG_SEQUENCE / max(1e-9, one.tokens_per_word)
    return [name, count(one.size), *cells, count(round(words)), percent(survey.shared.get(one.name, 1.0))]


def _coverage(survey: VocabularySurvey) -> str:
    shown = [survey.own, *survey.given][: len(_COLOURS)]
    curves = [Series(one.name, one.coverage(), css) for one, css in zip(shown, _COLOURS, strict=False)]
    coverage = line_chart(curves, x_name="tokens, the most frequent first", y_name="share of the text", log_x=True)
    used = f"{count(survey.own.num_used)} of {count(survey.own.size)} tokens occur in this text."
    charts = [figure(coverage, f"Coverage: the share of the text that the most frequent tokens are. {used}")]
    here = [*survey.trained.values(), *([survey.own] if survey.was_trained else [])]
    trained = sorted({(float(one.size), one.tokens_per_word) for one in here})
    if len(trained) > 1:
        dots = [
            Series(one.name, [(float(one.size), one.tokens_per_word)], css, marked=True)
            for one, css in zip(survey.given, _COLOURS[1:], strict=False)
        ]
        sizes = [Series("trained on this text", trained, _COLOURS[0], marked=True), *dots]
        chart = line_chart(sizes, x_name="tokens in the vocabulary", y_name="tokens a word", log_x=True)
        charts.append(figure(chart, "What size buys: tokens a word, by the size of the vocabulary."))
    return section("coverage", "Coverage and size", side_by_side(*charts))


def _small(share: float) -> str:
    """Format a share that matters though it is small.

    Example:
        >>> _small(0.00023), _small(0.0)
        ('0.023 %', '0 %')
    """
    return f"{100 * share:.2g} %"


def _parts(survey: VocabularySurvey) -> str:
    several = len(survey.by_source) > 1
    scripts = {one.name: [one] for one in survey.by_script.values()}
    blocks = [
        _fits("source", {"all": [survey.own, *survey.given], **survey.by_source} if several else survey.by_source)
    ]
    if several:
        note = "All vocabularies on the same text of each source; one without text in this split has no row."
        blocks.insert(0, paragraph(note, "soft"))
    if survey.by_language:
        blocks.append(_fits("language", survey.by_language))
    languages = "languages in one script are not told apart." if not several else "whatever the language."
    blocks.append(paragraph(f"By the script of a word's first letter; {languages}", "soft"))
    blocks.append(_fits("script", scripts) if scripts else paragraph("No letters."))
    return section("sources", "By source, language and script" if several else "By source and script", *blocks)


def _fits(first: str, parts: Mapping[str, Sequence[Fit]]) -> str:
    """Return a table of how vocabularies cut parts of the text; they are named where there are several."""
    rows = [
        [
            name,
            one.name if len(fits) > 1 else "",
            count(one.words),
            f"{one.tokens_per_word:.3f}",
            percent(one.continued_rate),
            _unknown(one),
        ]
        for name, fits in parts.items()
        for one in fits
    ]
    return table([first, "vocabulary", "words", "tokens a word", "words cut", "unknown"], rows)


def _cut(survey: VocabularySurvey) -> str:
    note = (
        "Ordered by what they cost: their count times their tokens beyond the first. tokenizer.user_words keeps words "
        "whole."
    )
    rows = [[one.word, count(one.count), " ".join(one.tokens)] for one in survey.cut]
    shown = table(["word", "times", "tokens"], rows) if rows else paragraph("None.")
    return section("cut", "Words that are cut", paragraph(note, "soft"), shown)


def _table_entries(survey: VocabularySurvey) -> str:
    longest = table(["token", "times"], [[token, count(number)] for token, number in survey.longest[:_ROWS]])
    rarest = table(["token", "times"], [[token, count(number)] for token, number in survey.rarest[:_ROWS]])
    unused = (
        f"{number_of(survey.num_unused, 'token')} of {count(survey.own.size)} never occur in the train text. What "
        "seldom occurs has an embedding that is hardly trained."
    )
    more = ", ".join(token for token, _ in survey.rarest[_ROWS:])
    return section(
        "entries",
        "The longest and the rarest tokens",
        paragraph(unused, "soft"),
        side_by_side(f"<div><h3>Longest</h3>{longest}</div>", f"<div><h3>Rarest that occur</h3>{rarest}</div>"),
        paragraph(f"More rare ones: {more}." if more else "", "soft"),
    )
