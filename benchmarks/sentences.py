"""Sentence splitting compared: learned, NLTK's Punkt and pysbd, on text whose sentences are known.

python benchmarks/sentences.py                     # prints a table; the last line is JSON
python benchmarks/sentences.py --keep              # records it in benchmarks/results

Sets: UD English EWT (the sentences of a paragraph as running text), Tatoeba (ten lines joined), and law texts of six
jurisdictions (`sentences_law.txt`): `drafts`, after which rules were mended, and `held_out`, written at the same time
by the same author and only measured. F1 is over the ends of sentences inside paragraphs. What learns, learns from the
text that it then splits, on EWT from the train documents; never from its sentences.

Some lines of Tatoeba are several sentences. In `READ_BY_HAND` each mark inside a line before a capital was looked at,
and all are ends: `several_in_a_line` counts them as such.
"""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from statistics import median

import nltk.tokenize.punkt
import pysbd
from measurements import HERE, keep, parser_of

from bertline.corpus.document import clean
from bertline.corpus.sentences.learned import LearnedSplitter, counts_of_words, learn
from bertline.foundation.manifests import versions_of
from bertline.foundation.parallel import processor_name

Paragraph = list[str]
Split = Callable[[str], list[str]]
DATA = HERE.parents[1] / "shared/data"
ENDS = tuple(".!?…")
AROUND = "\"'”’»)]}"
BARE = re.compile(r"(?:[^\W_]{1,5}\.\s?){1,2}")
MIN_MARKED = 0.95  # share of lines that end in a mark, from which on a language counts
# Marks of the scripts of Tatoeba; letters and signs of vowels are none.
MARKS = frozenset(".!?…。！？।॥۔؟።։:;⸮\u037e")
READ_BY_HAND = ("ang", "ast")
INSIDE = re.compile(r"""(?<=[.!?…])(["'”’»)]*) (?=[¿¡"'“‘«]*[^\W\d_a-z])""")
LAW_SENTENCES = 5  # in a paragraph
SPEED_MB = 8
PYSBD_PARAGRAPHS = 300


def ewt(folder: Path, split: str) -> list[Paragraph]:
    """Return the paragraphs of the documents of one split, each a list of sentences."""
    found: list[Paragraph] = []
    for line in (folder / f"en_ewt-ud-{split}.conllu").read_text(encoding="utf-8").splitlines():
        if line.startswith(("# newdoc", "# newpar")):
            found.append([])
        elif line.startswith("# text = "):
            found[-1].append(clean(line.removeprefix("# text = ")))
    return [paragraph for paragraph in found if paragraph]


def tatoeba(folder: Path) -> dict[str, list[Paragraph]]:
    """Return the lines of each language joined by tens."""
    languages: dict[str, list[Paragraph]] = {}
    for path in sorted(folder.glob("tatoeba.*-eng.*")):
        if path.suffix != ".eng":
            lines = [text for text in map(clean, path.read_text(encoding="utf-8").splitlines()) if text]
            languages[path.suffix[1:]] = [lines[first : first + 10] for first in range(0, len(lines), 10)]
    return languages


def law(name: str) -> list[Paragraph]:
    """Return the sentences of all jurisdictions, in their order, in paragraphs of five."""
    parts = (HERE / "sentences_law.txt").read_text(encoding="utf-8").split("\n\n")
    of_each = [part.strip().splitlines()[1:] for part in parts if part.startswith(f"[{name}/")]
    return [lines[first : first + LAW_SENTENCES] for lines in of_each for first in range(0, len(lines), LAW_SENTENCES)]


def divided(texts: list[Paragraph]) -> list[Paragraph]:
    """Return paragraphs with an end at each mark inside a line before a capital."""
    return [
        [sentence for line in paragraph for sentence in INSIDE.sub(r"\1\n", line).split("\n")] for paragraph in texts
    ]


def marked(texts: list[Paragraph]) -> float:
    """Return the share of lines that end in a mark."""
    lines = [line.rstrip(AROUND) for paragraph in texts for line in paragraph]
    return sum(line[-1:] in MARKS for line in lines) / len(lines)


def places(sentences: Iterable[str], *, only_marks: bool) -> set[int]:
    """Return the places between the sentences of a paragraph."""
    found, place = set(), 0
    for sentence in sentences:
        place += len("".join(sentence.split()))
        if not only_marks or sentence.rstrip().rstrip(AROUND).endswith(ENDS):
            found.add(place)
    return found - {place}


def f1(texts: list[Paragraph], split: Split, *, only_marks: bool = False) -> float:
    """Return F1 over the places inside paragraphs."""
    both = wrong = 0
    for paragraph in texts:
        expected = places(paragraph, only_marks=only_marks)
        found = places(split(" ".join(paragraph)), only_marks=only_marks)
        both += len(expected & found)
        wrong += len(expected ^ found)
    return round(2 * both / max(1, 2 * both + wrong), 4)


def bare(texts: list[Paragraph], split: Split) -> float:
    """Return the share of sentences that are nothing but an abbreviation."""
    sentences = [sentence for paragraph in texts for sentence in split(" ".join(paragraph))]
    return round(sum(BARE.fullmatch(sentence) is not None for sentence in sentences) / len(sentences), 4)


def punkt(texts: Iterable[str]) -> Split:
    """Train NLTK's Punkt."""
    trainer = nltk.tokenize.punkt.PunktTrainer()
    trainer.train("\n\n".join(texts), finalize=True)
    return nltk.tokenize.punkt.PunktSentenceTokenizer(trainer.get_params()).tokenize


def learned(texts: Iterable[str]) -> Split:
    """Learn from paragraphs."""
    return LearnedSplitter.of(learn(counts_of_words(texts))).split


@cache
def fixed() -> dict[str, Split]:
    """Return the systems that learn nothing."""
    return {
        "punkt_untrained": nltk.tokenize.punkt.PunktSentenceTokenizer().tokenize,
        "pysbd": pysbd.Segmenter(language="en", clean=False).segment,
    }


def systems(texts: list[Paragraph]) -> dict[str, Split]:
    """Return all systems; those that learn have read these paragraphs."""
    joined = [" ".join(paragraph) for paragraph in texts]
    return {"learned": learned(joined), "punkt": punkt(joined), **fixed()}


def speed(folder: Path) -> dict[str, float]:
    """Return MB of UTF-8 a second, on one core, of splitting Wikipedia and of learning from it."""
    texts: list[str] = []
    for path in sorted((folder / "wikipedia").rglob("*.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            texts += [text for text in map(clean, lines) if text and not text.startswith("<")]
        if megabytes(texts) >= SPEED_MB:
            break
    started = time.process_time()
    splitter = learned(texts)
    figures = {"wikipedia/learning": megabytes(texts) / (time.process_time() - started)}
    share = texts[:: max(1, len(texts) // PYSBD_PARAGRAPHS)]
    for system, split in {"learned": splitter, **fixed()}.items():
        part = share if system == "pysbd" else texts
        started = time.process_time()
        for text in part:
            split(text)
        figures[f"wikipedia/{system}"] = megabytes(part) / (time.process_time() - started)
    return {name: round(value, 2) for name, value in figures.items()}


def megabytes(texts: list[str]) -> float:
    """Return the size of texts in UTF-8."""
    return sum(len(text.encode()) for text in texts) / 1e6


def main() -> None:
    """Measure, print, and keep if asked to."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with corpora/ and tasks/")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}

    def measure(name: str, texts: list[Paragraph], used: dict[str, Split], *, only_marks: bool = False) -> None:
        figures[name] = {system: f1(texts, split, only_marks=only_marks) for system, split in used.items()}
        print(f"{name:32}", *(f"{system} {value:.4f}" for system, value in figures[name].items()), sep="  ", flush=True)

    for name, texts in {"law_drafts": law("drafts"), "law_held_out": law("held_out")}.items():
        used = {"learned_from_nothing": learned([]), **systems(texts)}
        measure(name, texts, used)
        figures[f"{name}/bare_abbreviations"] = {system: bare(texts, split) for system, split in used.items()}
    task = arguments.data / "tasks/ud_english_ewt"
    if task.exists():
        used = systems(ewt(task, "train"))
        for split in ("dev", "test"):
            measure(f"ewt_{split}/ends_in_mark", ewt(task, split), used, only_marks=True)
            measure(f"ewt_{split}/all", ewt(task, split), used)
    languages = tatoeba(arguments.data / "corpora/tatoeba")
    by_system: dict[str, dict[str, float]] = {}
    by_hand: dict[str, dict[str, float]] = {}
    for language, texts in languages.items():
        if marked(texts) >= MIN_MARKED:
            for system, divide in systems(texts).items():
                if system != "pysbd":  # 40 times as slow as the others
                    by_system.setdefault(system, {})[language] = f1(texts, divide)
                    if language in READ_BY_HAND:
                        by_hand.setdefault(system, {})[language] = f1(divided(texts), divide)
    summary = {
        system: {"languages": len(scores), "median": median(scores.values()), "min": min(scores.values()),
                 "below_0.95": {language: score for language, score in scores.items() if score < 0.95},
                 "several_in_a_line": by_hand[system]}
        for system, scores in by_system.items()
    }  # fmt: skip
    result = {"f1": figures, "tatoeba": summary}
    if (arguments.data / "corpora/wikipedia").exists():
        result["mb_per_s"] = speed(arguments.data / "corpora")
    about = {"device": processor_name(), "versions": versions_of("nltk", "pysbd")}
    keep("sentences", {**result, **about}, arguments)
    print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
    main()
