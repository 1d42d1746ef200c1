"""context: what context does to a word, measured on a user's files."""

from __future__ import annotations

import argparse
import itertools
import tempfile

import bertline
from bertline.cli.commands import newest_model
from bertline.cli.project import folder_or_name, of_caller
from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.files import write_json, writing
from bertline.foundation.progress import say


def context(arguments: list[str]) -> None:
    """Measure what context does to a word; each option prints a table, next to what simple methods reach.

        bertline context --word bank --text RIVER.txt MONEY.txt   similarity by layer; each file is a sense of the word
        bertline context --wic dev.data.txt [TEST.data.txt]       same sense in two sentences? (gold.txt is next to it)
        bertline context --text FILE ...                          blanks from both sides and the left; next sentences
        bertline context --analogies FILE                         lines of four words, `: NAME` before a section

    A text file is a document; a corpus folder gives its validation documents, of which --most 2000 sentences are drawn.
    --model names a folder or a model of the hub, not the newest one here; --out FILE.json keeps the figures.
    """
    parser = argparse.ArgumentParser(prog="bertline context", add_help=False)
    parser.add_argument("--model")
    parser.add_argument("--word", nargs="+", default=[])
    parser.add_argument("--most", type=int, default=2000)
    for option, nargs in (("--wic", "+"), ("--text", "+"), ("--analogies", None), ("--out", None)):
        parser.add_argument(option, type=of_caller, nargs=nargs, default=[])
    asked = parser.parse_args(arguments)
    if not (asked.wic or asked.text or asked.analogies) or asked.wic[2:] or (asked.out and asked.out.is_dir()):
        raise ConfigError("name files: --text FILE ..., --wic FILE [TEST_FILE], --analogies FILE; and --out FILE.json")
    if asked.out:  # what cannot be written is said before minutes of measuring
        with writing(asked.out):
            asked.out.parent.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=asked.out.parent).close()
    import pandas as pd

    from bertline.inside import context as inside

    name = newest_model() if asked.model is None else folder_or_name(asked.model)
    model, tables = bertline.load(str(name)), []
    texts = {str(path): inside.read_text([path]) for path in asked.text}
    for word in asked.word:
        stands_in = inside.whole_word(word).search
        sentences = {path: [*filter(stands_in, itertools.chain(*documents))] for path, documents in texts.items()}
        tables.append(inside.senses(model, word, sentences))
    if asked.wic:
        tables.append(inside.wic(model, *map(inside.read_wic, asked.wic)))
    if texts and not asked.word:
        documents = [*itertools.chain(*texts.values())]
        tables.append(inside.blanks(model, documents, most=asked.most))
        try:
            tables.append(inside.next_sentences(model, documents, most=asked.most))
        except ArtifactError as error:  # many encoders have no such head
            say(str(error))
    if asked.analogies:
        tables.append(inside.analogies(model, inside.read_analogies(asked.analogies)))
    say(f"model: {name}")
    for title, rows, facts in tables:
        table = pd.DataFrame(rows).to_string(index=False, float_format="%.3f")
        shown = (f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in facts.items())
        say(f"\n{title}\n{table}\n{', '.join(one for one in shown if not one.startswith('reliability'))}")
    if asked.out:
        write_json(asked.out, {"model": str(name), "tables": [table._asdict() for table in tables]})
