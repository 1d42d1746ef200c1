"""Commands that look inside an encoder: a page of a text, its heads against a treebank, and words in context."""

import argparse
import textwrap
from itertools import chain
from pathlib import Path

import bertline
from bertline.cli.commands import newest_model
from bertline.cli.project import folder_or_name, of_caller
from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.files import write_atomically, write_json
from bertline.foundation.progress import say
from bertline.tasks.treebank import read_treebank


def look(arguments: list[str]) -> None:
    """Write one HTML page that shows what an encoder computes for a text: attention, neurons, vectors, guesses.

        bertline look "The animal did not cross the street because it was tired."
        bertline look "Is it open?" --pair "It closes at nine." --model FOLDER_OR_NAME
        bertline look "The function returns a ___ of integers." --against artifacts/export/docs_match

    Without --model it takes the newest of artifacts/ and runs/. --against FOLDER_OR_NAME shows a second model side by
    side, and --out FILE names the page (look.html). The page needs no network.
    """
    usage = '%(prog)s "TEXT IN QUOTES" [--pair "TEXT"] [--model ...] [--against ...] [--out FILE], see %(prog)s --help'
    parser = argparse.ArgumentParser(prog="bertline look", usage=usage, add_help=False)
    parser.add_argument("text")
    for option in ("--pair", "--model", "--against"):
        parser.add_argument(option)
    parser.add_argument("--out", default="look.html")
    parsed = parser.parse_args(arguments)
    from bertline.inside import look as inside  # loads torch

    inside.require_texts(parsed.text, parsed.pair)  # before a model is looked for and loaded
    names = [newest_model() if parsed.model is None else folder_or_name(parsed.model)]
    names += [] if parsed.against is None else [folder_or_name(parsed.against)]
    page, left_out = inside.look([bertline.load(str(name)) for name in names], parsed.text, parsed.pair)
    path = of_caller(parsed.out)
    write_atomically(path, page)
    for sentence in left_out:
        say(sentence)
    say(f"{path}: {len(page.encode()) / 1e6:.2f} MB")


def heads(arguments: list[str]) -> None:
    """Measure which attention head finds which syntactic relation of a treebank, compared with a fixed offset.

        bertline heads --treebank dev.conllu --test test.conllu --model FOLDER_OR_NAME
        bertline heads --treebank dev.conllu --ablate 100            also the loss without each head
        bertline heads --treebank dev.conllu --ablate 200 --task artifacts/export/docs_match --rows rows.csv

    Heads are chosen on the first file and scored on the second; a single file is cut in two halves. Without --model it
    takes the newest of artifacts/ and runs/. It writes heads.json and heads.png to --out (default: heads). --ablate
    takes that many sentences for the loss, and rows (CSV, columns text and label) for the accuracy of a task's model.
    """
    parser = argparse.ArgumentParser(prog="bertline heads", add_help=False)
    for name in ("treebank", "test", "rows", "out"):
        parser.add_argument(f"--{name}", type=of_caller, required=name == "treebank")
    for name in ("model", "task"):
        parser.add_argument(f"--{name}", type=folder_or_name)
    parser.add_argument("--ablate", type=int, nargs="?", const=100)
    parser.add_argument("--min-examples", type=int, default=100)
    asked = parser.parse_args(arguments)
    if (asked.task is None) != (asked.rows is None) or (asked.task is not None and asked.ablate is None):
        raise ConfigError("--task needs --rows FILE (columns text and label) and --ablate, and --rows needs --task.")
    if min(asked.min_examples, 1 if asked.ablate is None else asked.ablate) < 1:
        raise ConfigError("--ablate and --min-examples must be at least 1.")
    name, out = str(asked.model or newest_model()), asked.out or of_caller("heads")
    from bertline.inside import heads as inside  # loads torch and matplotlib

    model, task, ablation = bertline.load(name), asked.task and bertline.load(str(asked.task)), []
    cut = "" if asked.test else f"; {asked.treebank.name} is cut in two: its first half chooses, its second half scores"
    say(f"model: {name}{cut}")
    if task is not None:
        ablation.append(inside.ablate_classifier(task, asked.rows, asked.ablate))
    if asked.ablate is not None:
        sentences = read_treebank(asked.test or asked.treebank)
        ablation.append(inside.ablate_language_model(model, sentences, asked.ablate))
    content = inside.measure_heads(model, asked.treebank, asked.test, min_examples=asked.min_examples)
    write_json(out / "heads.json", {"model": Path(name).name, **content, "ablation": ablation})
    inside.draw_heads(content["relations"]).savefig(out / "heads.png", dpi=110, bbox_inches="tight")
    texts = [inside.table_of(content), *(one["in_words"] for one in ablation), f"written: {out}/heads.json, .png"]
    say("\n" + "\n\n".join(texts))


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
