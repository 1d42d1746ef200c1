"""context: what context does to a word, measured on a user's files."""

from __future__ import annotations

import argparse
import textwrap
from itertools import chain

import bertline
from bertline.cli.commands import newest_model
from bertline.cli.project import folder_or_name, of_caller
from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.files import write_json
from bertline.foundation.progress import say


def context(arguments: list[str]) -> None:
    """Measure what context does to a word; each option prints a table, next to what simple methods reach.

        bertline context --word bank --text RIVER.txt MONEY.txt   similarity by layer; a file is a sense (no blanks)
        bertline context --wic dev.data.txt [TEST.data.txt]       same sense in two sentences? (gold.txt is next to it)
        bertline context --text FILE ...                          blanks from both sides and the left; next sentences
        bertline context --analogies FILE                         lines of four words, `: NAME` before a section

    A text file is a document, a corpus folder gives its validation documents; --most 2000 of their sentences are drawn.
    Blank lines of a file divide paragraphs, whose lines may be wrapped; without any, each line is a paragraph.
    --model names a folder or a model of the hub, not the newest one here; --out FILE.json keeps the figures.

    within, between: cosine of two places in one sense, in two. where_chosen: accuracy where threshold and layer are.
    lost, more_nats: what both sides are better by. ece: distance of probabilities from frequencies. offset: accuracy of
    b - a + c. c_alone: of the neighbour of c. gain: accuracy over the best simple method. left_out: rows that cannot be
    asked. num_cut: texts that are cut to what the model reads.
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
    if asked.most < 1 or len({path.resolve() for path in asked.wic}) < len(asked.wic):
        raise ConfigError("--most needs 1 or more sentences, and --wic another file to be scored on than to choose on")
    import pandas as pd

    from bertline.inside import context as inside

    texts = {str(path): inside.read_text([path]) for path in asked.text}
    wic, documents = [*map(inside.read_wic, asked.wic)], [*chain(*texts.values())]
    analogies = inside.read_analogies(asked.analogies) if asked.analogies else []
    name = newest_model() if asked.model is None else folder_or_name(asked.model)
    model, tables = bertline.load(str(name)), []

    def keep(table: inside.Table | None = None) -> None:
        if table:
            rows = pd.DataFrame(table.rows).fillna("-").to_string(index=False, float_format="%.3f")
            facts = {key: "-" if value is None else value for key, value in table.facts.items() if key != "reliability"}
            line = ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in facts.items())
            say(f"\n{table.title}\n{rows}\n{textwrap.fill(line, 80)}")
            tables.append(table._asdict())
        if asked.out:
            write_json(asked.out, {"model": str(name), "tables": tables})

    keep()  # what cannot be written is said before minutes of measuring
    say(f"model: {name}")
    for word in asked.word:
        with_word = {path: [*filter(inside.whole_word(word).search, chain(*each))] for path, each in texts.items()}
        keep(inside.senses(model, word, with_word))
    if wic:
        keep(inside.wic(model, *wic))
    if texts and not asked.word:
        keep(inside.blanks(model, documents, most=asked.most))
        try:
            keep(inside.next_sentences(model, documents, most=asked.most))
        except ArtifactError as error:  # many encoders have no such head
            say(f"\n{error}")
    if asked.analogies:
        keep(inside.analogies(model, analogies))
