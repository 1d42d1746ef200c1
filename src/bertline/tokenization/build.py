"""The tokenizer stage: a vocabulary trained on the corpus, an existing or an extended one, and how well it fits."""

import dataclasses
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, assert_never

from bertline.corpus.document import Split
from bertline.corpus.storage import shard_paths
from bertline.foundation.engine import Engine
from bertline.foundation.errors import ConfigError, DataError
from bertline.foundation.files import folder_written_atomically
from bertline.foundation.manifests import versions_of, write_manifest
from bertline.foundation.progress import progress, say, warn
from bertline.foundation.seeds import seed_for
from bertline.tokenization.config import (
    ByteBpeTokenizerConfig,
    ExistingTokenizerConfig,
    ExtendedTokenizerConfig,
    TokenizerConfig,
    TrainedTokenizerConfig,
)
from bertline.tokenization.counting import CorpusText, WordSplitter, sampled_documents
from bertline.tokenization.fit import cut_words, fit_of
from bertline.tokenization.storage import copy_tokenizer, save_tokenizer
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.training import left_out, train_byte_bpe, train_wordpiece
from bertline.tokenization.vocabulary import MAX_WORD_CHARACTERS, Vocabulary, resolve_folder
from bertline.tokenization.words import read_user_words, with_user_words, words_to_add

_HEADLINE = ("tokens_per_word", "unknown_rate", "unknown_character_rate", "whole_word_rate")
_MOST_FREQUENT, _SAMPLED_WORDS, _SHOWN_WORDS = 20, 30, 8
_REPORT_CHARACTERS = 20_000_000  # for the quality report: enough for rates to four decimal places
_MUCH_UNKNOWN = 0.02  # share of words that become [UNK], or of characters in them, from which there is a warning
_MARKS_CHARACTERS = 2_000_000
# First words of the names of letters and marks in which a nonspacing mark is an accent, or means nothing.
_ACCENTED = ("", "Latin", "Greek", "Combining", "Variation")
# Share of letters that lose a mark from which Latin marks are no accents: as in Vietnamese (over a quarter), Czech and
# Hungarian, and not in French or Spanish (3 to 4 %).
_LATIN_MARKS = 0.1
_MARKS_MATTER = 0.005  # share of letters that lose a mark from which marks are kept


def build_tokenizer(
    config: TokenizerConfig, corpus_folder: Path, out: Path, *, engine: Engine, work: Path
) -> dict[str, float | int]:
    """Build the tokenizer artifact: `tokenizer.json`, `tokenizer_config.json`, `manifest.json`, and `vocab.txt` of a
    WordPiece vocabulary.

    The output bytes depend only on the corpus and the configuration, not on the engine, which counts words into `work`.

    Returns:
        Vocabulary size and the main figures of the quality report.

    Raises:
        DataError: The corpus does not support the vocabulary size, or the existing vocabulary cannot be used.
    """
    text = CorpusText(corpus_folder, engine, work)
    match config:
        case TrainedTokenizerConfig():
            tokenizer, facts = _train(config, text)
        case ByteBpeTokenizerConfig():
            tokenizer, facts = _train_bytes(config, text)
        case ExistingTokenizerConfig():
            tokenizer, facts = _given(config), {"path": config.path, "revision": config.revision}
        case ExtendedTokenizerConfig():
            tokenizer, facts = _extend(config, text)
        case _:
            assert_never(config)
    split, word_counts = _held_out_words(tokenizer.normalization, text)
    quality = {"split": split, **quality_report(tokenizer, word_counts)}
    _warn_of_unknown(quality)
    with folder_written_atomically(out) as folder:
        if isinstance(config, ExistingTokenizerConfig) and not tokenizer.is_wordpiece:
            copy_tokenizer(_folder_of(config), folder)
        else:
            save_tokenizer(tokenizer, folder)
        content: dict[str, Any] = {
            "source": config.kind,
            "vocab_size": tokenizer.vocab_size,
            "lowercase": tokenizer.lowercase,
            "special_ids": {token: tokenizer.vocab.index(token) for token in tokenizer.special_tokens},
            "quality": quality,
            "versions": versions_of("tokenizers"),
            **facts,
        }
        write_manifest(folder, kind="tokenizer", format_version=1, content=content)
    return {"vocab_size": tokenizer.vocab_size, **{name: quality[name] for name in _HEADLINE}}


def _train(config: TrainedTokenizerConfig, text: CorpusText) -> tuple[Tokenizer, dict[str, Any]]:
    plain = Vocabulary(tokens=(), lowercase=config.lowercase, strip_accents=config.strip_accents)
    kept_marks = marks_lost(text) if config.lowercase and config.strip_accents is None else {}
    if keeps_marks := sum(kept_marks.values()) >= _MARKS_MATTER:
        say(f"accents are kept (tokenizer.strip_accents): they make other letters in {', '.join(kept_marks)}")
        plain = dataclasses.replace(plain, strip_accents=False)
    user_words = read_user_words(config.user_words, WordSplitter(plain))
    unsplit = tuple(word for word, is_split in user_words.items() if is_split)
    plain = dataclasses.replace(plain, unsplit=unsplit)
    fraction, word_counts = _train_words(config.sample_characters, plain, text)
    occur = {word: word_counts[word] for word in user_words}
    for word in unsplit:  # with its marks it would teach merges that no other word can use
        word_counts.pop(word, None)
    say(f"training {config.vocab_size:,} tokens on {len(word_counts):,} distinct words")
    tokens = train_wordpiece(
        word_counts, vocab_size=config.vocab_size, min_frequency=config.min_frequency, max_alphabet=config.max_alphabet
    )
    rare, rare_share = left_out(word_counts, config.max_alphabet)
    if rare:
        (warn if rare_share >= _MUCH_UNKNOWN else say)(
            f"tokenizer.max_alphabet={config.max_alphabet} leaves out {len(rare):,} characters "
            f"({', '.join(rare[:_SHOWN_WORDS])} ...): the words that have them, {rare_share:.2%} of the text, become "
            f"[UNK]; tokenizer.max_alphabet={config.max_alphabet + len(rare)} keeps all"
        )
    learned = set(tokens)
    tokens = with_user_words(tokens, tuple(user_words), size=config.vocab_size)
    facts = {
        "trained_on": {
            "fraction": fraction,
            "words": sum(word_counts.values()),
            "distinct_words": len(word_counts),
            "characters_known": sum(len(token) == 1 for token in tokens),
            "characters_left_out": len(rare),
            "left_out_share": rare_share,
        },
        **({"kept_marks": kept_marks} if keeps_marks else {}),
        **_user_word_facts(occur, learned),
    }
    return Tokenizer(dataclasses.replace(plain, tokens=tokens)), facts


def _train_bytes(config: ByteBpeTokenizerConfig, text: CorpusText) -> tuple[Tokenizer, dict[str, Any]]:
    fraction = text.fraction("train", config.sample_characters)
    description = f"training {config.vocab_size:,} byte-level tokens, files"
    files = progress(shard_paths(text.folder, "train"), description=description)
    texts = (" ".join(document.sentences) for path in files for document in sampled_documents(path, fraction))
    tokenizer = train_byte_bpe(texts, vocab_size=config.vocab_size, min_frequency=config.min_frequency)
    return tokenizer, {"trained_on": {"fraction": fraction}}


def _user_word_facts(occur: Mapping[str, int], known: Collection[str]) -> dict[str, Any]:
    """Say of the user's words which the vocabulary would have had anyway, and which the text does not have."""
    if not occur:
        return {}
    absent = [word for word in occur if not occur[word]]
    if absent:
        say(f"words of tokenizer.user_words that are not in the text, so nothing trains them: {', '.join(absent)}")
    anyway = [word for word in occur if word in known]
    return {"user_words": {"words": list(occur), "in_anyway": anyway, "not_in_text": absent}}


def _folder_of(config: ExistingTokenizerConfig | ExtendedTokenizerConfig) -> Path:
    assert config.path is not None  # the configuration refuses it
    path = Path(config.path).expanduser()
    return path if path.is_file() else resolve_folder(config.path, config.revision)


def _given(config: ExistingTokenizerConfig | ExtendedTokenizerConfig) -> Tokenizer:
    tokenizer = Tokenizer.load(_folder_of(config), lowercase=config.lowercase)
    if tokenizer.is_wordpiece:
        return tokenizer
    key = "kind" if config.kind == "extended" else "lowercase"
    if key == "kind" or config.lowercase is not None:
        raise ConfigError(
            f"tokenizer.{key} is {getattr(config, key)}, which is for WordPiece vocabularies only; tokenizer.path="
            f"{config.path} holds a {tokenizer.description}. Take that as it is: tokenizer=existing "
            f"tokenizer.path={config.path} tokenizer.lowercase=null"
        )
    return tokenizer


def _extend(config: ExtendedTokenizerConfig, text: CorpusText) -> tuple[Tokenizer, dict[str, Any]]:
    old = _given(config).vocabulary
    user_words = read_user_words(config.user_words, WordSplitter(old))
    unsplit = tuple(word for word, is_split in user_words.items() if is_split and word not in old.unsplit)
    known = set(old.tokens)
    asked = tuple(word for word in user_words if word not in known)
    base = dataclasses.replace(old, tokens=(*old.tokens, *asked), unsplit=(*old.unsplit, *unsplit))
    fraction, word_counts = _train_words(config.sample_characters, base, text)
    words = words_to_add(base, word_counts, num_new=config.num_new, min_frequency=config.min_frequency)
    if not words and not asked:
        raise DataError(
            f"tokenizer.kind is extended, but {config.path} has all words of {text.folder} that occur at least "
            f"tokenizer.min_frequency={config.min_frequency} times. Use its vocabulary as it is (tokenizer=existing), "
            "or lower tokenizer.min_frequency."
        )
    split, held_out = _held_out_words(old, text)
    before = quality_report(Tokenizer(old), held_out)
    say(f"{config.path}: {len(words):,} words added to {len(old.tokens):,} tokens: {', '.join(words[:_SHOWN_WORDS])}")
    facts = {
        "path": config.path,
        "revision": config.revision,
        "extended": {
            "fraction": fraction,
            "num_old": len(old.tokens),
            "num_new": len(asked) + len(words),
            "least_count": min((word_counts[word] for word in words), default=None),
            "before": {"split": split, **{name: before[name] for name in _HEADLINE}},
        },
        **_user_word_facts({word: word_counts[word] for word in user_words}, known),
    }
    return Tokenizer(dataclasses.replace(base, tokens=(*base.tokens, *words))), facts


def marks_lost(text: CorpusText) -> dict[str, float]:
    """Return the share of the letters of the train text that would lose a mark, by script.

    Stripping takes away what Unicode calls nonspacing marks: vowels of Devanagari and Thai, the breve of a Cyrillic
    short i, the voicing of Japanese syllables. In Greek letters these are accents, and in Latin ones unless they are
    many.
    """
    counts = text.words("train", None, characters=_MARKS_CHARACTERS)[""]
    letters = {one: count for one, count in counts.items() if one.isalpha() or unicodedata.category(one) == "Mn"}
    total = sum(letters.values())
    lost: Counter[str] = Counter()
    for one, count in letters.items():
        if any(unicodedata.category(part) == "Mn" for part in unicodedata.normalize("NFD", one)):
            lost[unicodedata.name(one, "").partition(" ")[0].title()] += count
    for script in _ACCENTED:
        if script != "Latin" or lost[script] < _LATIN_MARKS * total:
            del lost[script]
    most_first = sorted(lost.items(), key=lambda item: (-item[1], item[0]))
    return {script: round(count / total, 6) for script, count in most_first}


def _warn_of_unknown(quality: Mapping[str, Any]) -> None:
    if max(quality["unknown_character_rate"], quality["unknown_rate"]) >= _MUCH_UNKNOWN:
        lacking = ", ".join(list(quality["unknown_characters"])[:_SHOWN_WORDS])
        warn(
            f"{quality['unknown_character_rate']:.1%} of the characters and {quality['unknown_rate']:.1%} of the words "
            f"of the {quality['split']} text become [UNK]. {quality['too_long_character_rate']:.1%} of the characters "
            f"are in words of over {MAX_WORD_CHARACTERS} letters: put spaces between words. Characters that the "
            f"vocabulary lacks: {lacking or 'none'}. Raise tokenizer.max_alphabet, or take tokenizer=wordpiece."
        )


def _train_words(sample_characters: int, normalization: Vocabulary, text: CorpusText) -> tuple[float, Counter[str]]:
    """Return the words of the train split, or of the fraction of it that is returned first."""
    word_counts = text.words("train", normalization, characters=sample_characters)[""]
    if not word_counts:
        raise DataError(f"{text.folder} has no words in its train split, so no vocabulary can be made from it.")
    return text.fraction("train", sample_characters), word_counts


def _held_out_words(normalization: Vocabulary, text: CorpusText) -> tuple[Split, Counter[str]]:
    """Return the words of the validation split, or of the train split if nothing is held out."""
    split: Split = "validation" if text.num_characters("validation") else "train"
    return split, text.words(split, normalization, characters=_REPORT_CHARACTERS)[""]


def quality_report(tokenizer: Tokenizer, word_counts: Mapping[str, int]) -> dict[str, Any]:
    """Compute quality figures on a text, given as normalised words with counts; words are weighted by their counts.

    Returns:
        `words` and `distinct_words`; `tokens_per_word`, the mean number of tokens per word (1 is ideal; English with a
        vocabulary of 30,522 has about 1.2); `unknown_rate`, the fraction of words that become [UNK];
        `unknown_character_rate`, the fraction of the characters that are in these, and `too_long_character_rate`, in
        words that become [UNK] for their length;
        `whole_word_rate`, the fraction of words that are one known token; `unknown_characters`, the most frequent
        characters that occur in no token, with counts; `sample`, words drawn by a hash from those with more than one
        token, with their tokens.
    """
    cut = cut_words(tokenizer, {"": word_counts})
    fit, lost, known = fit_of("", tokenizer, cut), cut[cut["is_unknown"]], set("".join(tokenizer.vocab))
    unknown: Counter[str] = Counter()
    for word in lost["word"]:
        unknown.update({character: word_counts[word] for character in word if character not in known})
    ranked = sorted(unknown.items(), key=lambda item: (-item[1], item[0]))
    too_long = sum(word_counts[word] * len(word) for word in lost["word"] if len(word) > MAX_WORD_CHARACTERS)
    split = cut[~cut["is_unknown"] & (cut["ids"].map(len) != 1)]
    drawn = sorted(
        (seed_for("quality sample", word), word, ids) for word, ids in zip(split["word"], split["ids"], strict=True)
    )
    return {
        "words": fit.words,
        "distinct_words": len(word_counts),
        "tokens_per_word": fit.tokens_per_word,
        "unknown_rate": fit.unknown_rate,
        "unknown_character_rate": fit.unknown_character_rate,
        "too_long_character_rate": too_long / max(1, sum(times * len(word) for word, times in word_counts.items())),
        "whole_word_rate": fit.whole / max(1, fit.words),
        "unknown_characters": dict(ranked[:_MOST_FREQUENT]),
        "sample": {word: " ".join(tokenizer.tokens(ids)) for _, word, ids in drawn[:_SAMPLED_WORDS]},
    }
