"""Commands that ask an encoder: blanks of a sentence, a page of a text, heads against a treebank, words in context."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bertline
from bertline.cli.composition import composing, require_counts
from bertline.cli.project import folder_or_name, of_caller
from bertline.foundation.errors import ArtifactError, BertlineError, ConfigError
from bertline.foundation.files import write_atomically, write_json
from bertline.foundation.progress import say
from bertline.run.folder import is_locked
from bertline.tasks.treebank import read_treebank

if TYPE_CHECKING:
    from bertline.inside.context import MeasuredTable


@composing("try")
def try_blanks(asked: dict[str, Any]) -> None:
    """Fill the blanks (___ or [MASK]) of sentences with an encoder's guesses; also works during a pretraining.

    bertline try                                                   type sentences
    bertline try text="The function returns a ___ of integers."
    bertline try model_folder=FOLDER_OR_NAME guesses=10
    """
    require_counts(asked, "guesses")
    name = encoder_named(asked["model_folder"])
    from bertline.inference.model import filled  # loads torch

    model = bertline.load(name)
    say(f"model: {name}")
    if asked["text"] is not None:
        say(filled(model, asked["text"], num_guesses=asked["guesses"]))
        return
    say("Type a sentence with blanks, such as: The function returns a ___ of integers.   (an empty line ends)")
    with suppress(EOFError):  # Ctrl-D
        for sentence in iter(lambda: input("> ").strip(), ""):
            try:
                say(filled(model, sentence, num_guesses=asked["guesses"]))
            except BertlineError as error:
                say(str(error))


@composing("look")
def look(asked: dict[str, Any]) -> None:
    """Write one HTML page that shows what an encoder computes for a text: attention, neurons, vectors, guesses.

        bertline look text="The animal did not cross the street because it was tired."
        bertline look text="Is it open?" pair="It closes at nine." model_folder=FOLDER_OR_NAME
        bertline look text="The function returns a ___ of integers." against=artifacts/export/docs_match

    The page needs no network.
    """
    from bertline.inside import look as inside  # loads torch

    inside.refuse_unreadable(asked["text"], asked["pair"])  # before a model is looked for and loaded
    names = [encoder_named(asked["model_folder"])]
    names += [] if asked["against"] is None else [str(folder_or_name(asked["against"]))]
    page, left_out = inside.look_page([bertline.load(name) for name in names], asked["text"], asked["pair"])
    path = of_caller(asked["out"])
    write_atomically(path, page)
    for sentence in left_out:
        say(sentence)
    say(f"{path}: {len(page.encode()) / 1e6:.2f} MB")


@composing("heads")
def heads(asked: dict[str, Any]) -> None:
    """Measure which attention head finds which syntactic relation of a treebank, compared with a fixed offset.

        bertline heads treebank=dev.conllu test=test.conllu model_folder=FOLDER_OR_NAME
        bertline heads treebank=dev.conllu ablate=100            also the loss without each head
        bertline heads treebank=dev.conllu ablate=200 classifier=artifacts/export/docs_match rows=rows.csv

    Heads are chosen on the first file and scored on the second; a single file is cut in two halves. It writes
    heads.json and heads.png.
    """
    require_counts(asked, "ablate", "min_examples")
    if (asked["classifier"] is None) != (asked["rows"] is None) or (asked["rows"] and asked["ablate"] is None):
        raise ConfigError("classifier=FOLDER, rows=FILE (columns text and label) and ablate=100 go together.")
    treebank, out = of_caller(asked["treebank"]), of_caller(asked["out"])
    test = None if asked["test"] is None else of_caller(asked["test"])
    name = encoder_named(asked["model_folder"])
    from bertline.inside import heads as inside  # loads torch and matplotlib

    model = bertline.load(name)
    cut = "" if test else f"; {treebank.name} is cut in two: its first half chooses, its second half scores"
    say(f"model: {name}{cut}")
    ablation = []
    if asked["classifier"] is not None:
        classifier = bertline.load(str(folder_or_name(asked["classifier"])))
        ablation.append(inside.ablate_classifier(classifier, of_caller(asked["rows"]), asked["ablate"]))
    if asked["ablate"] is not None:
        ablation.append(inside.ablate_language_model(model, read_treebank(test or treebank), asked["ablate"]))
    content = inside.measure_heads(model, treebank, test, min_examples=asked["min_examples"])
    write_json(out / "heads.json", {"model": Path(name).name, **content, "ablation": ablation})
    inside.draw_heads(content["relations"]).savefig(out / "heads.png", dpi=110, bbox_inches="tight")
    texts = [inside.table_of(content), *(one["in_words"] for one in ablation), f"written: {out}/heads.json, .png"]
    say("\n" + "\n\n".join(texts))


@composing("context")
def context(asked: dict[str, Any]) -> None:
    """Measure what context does to a word; each argument adds a table, next to what simple methods reach.

        bertline context word=bank texts=[RIVER.txt,MONEY.txt]   similarity by layer; a file is a sense (no blanks)
        bertline context wic=dev.data.txt                        same sense in two sentences? (gold.txt is next to it)
        bertline context texts=FILE                              blanks from both sides and the left; next sentences
        bertline context analogies=FILE                          lines of four words, `: NAME` before a section

    A text file is a document, a corpus folder gives its validation documents. Blank lines of a file divide paragraphs,
    whose lines may be wrapped; without any, each line is a paragraph.

    within, between: cosine of two places in one sense, in two. where_chosen: accuracy where threshold and layer are.
    lost, more_nats: what both sides are better by. ece: distance of probabilities from frequencies. offset: accuracy of
    b - a + c. c_alone: of the neighbour of c. gain: accuracy over the best simple method. left_out: rows that cannot be
    asked. num_cut: texts that are cut to what the model reads.
    """
    require_counts(asked, "most")
    words, text_files, wic_files = (_listed(asked[key]) for key in ("word", "texts", "wic"))
    if not (text_files or wic_files or asked["analogies"]) or len(wic_files) > 2:
        raise ConfigError("name files: texts=[FILE, ...], wic=[FILE, TEST_FILE] or analogies=FILE.")
    if len({of_caller(path).resolve() for path in wic_files}) < len(wic_files):
        raise ConfigError("wic needs another file to be scored on than to choose on.")
    from bertline.inside import context as inside

    texts = {path: inside.read_text([of_caller(path)]) for path in text_files}
    wic = [inside.read_wic(of_caller(path)) for path in wic_files]
    analogies = inside.read_analogies(of_caller(asked["analogies"])) if asked["analogies"] else []
    name = encoder_named(asked["model_folder"])
    model = bertline.load(name)
    measures: list[Callable[[], MeasuredTable]] = []
    for word in words:
        found = inside.whole_word(word).search
        sentences = {path: [*filter(found, chain(*documents))] for path, documents in texts.items()}
        measures.append(partial(inside.senses, model, word, sentences))
    if wic:
        measures.append(partial(inside.wic, model, *wic))
    if texts and not words:
        documents = [*chain(*texts.values())]
        for measure in (inside.blanks, inside.next_sentences):
            measures.append(partial(measure, model, documents, most=asked["most"]))
    if analogies:
        measures.append(partial(inside.analogies, model, analogies))
    tables: list[dict[str, Any]] = []

    def keep() -> None:
        if asked["out"] is not None:
            write_json(of_caller(asked["out"]), {"model": name, "tables": tables})

    keep()  # what cannot be written is said before minutes of measuring
    say(f"model: {name}")
    for measured in measures:
        try:
            table = measured()
        except ArtifactError as error:  # many encoders lack a head that a measure needs
            say(f"\n{error}")
            continue
        say(_in_words(table))
        tables.append(table._asdict())
        keep()


def _in_words(table: MeasuredTable) -> str:
    import pandas as pd

    rows = pd.DataFrame(table.rows).fillna("-").to_string(index=False, float_format="%.3f")
    facts = {key: "-" if value is None else value for key, value in table.facts.items() if key != "reliability"}
    line = ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in facts.items())
    return f"\n{table.title}\n{rows}\n{textwrap.fill(line, 80)}"


def _listed(value: Any) -> list[str]:
    """Return one or several texts as a list."""
    return [str(one) for one in (value if isinstance(value, list) else [value]) if one is not None]


def encoder_named(given: str | None) -> str:
    """Return the folder or hub name of an encoder; None takes the newest one that is here."""
    return str(newest_model() if given is None else folder_or_name(given))


def newest_model() -> Path:
    """Return the newest weights of a running pretraining, else the finished encoder, else the newest of any run."""
    finished = Path("artifacts/pretrain")

    # Between the two renames of a swap there is no folder for a moment.
    written_s = {path: path.stat().st_mtime for path in Path().glob("runs/pretrain/*/latest") if path.exists()}
    newest_first = sorted(written_s, key=written_s.__getitem__, reverse=True)
    running = [path for path in newest_first if is_locked(path.parent)]
    candidates = [*running, *([finished] if (finished / "model.safetensors").exists() else []), *newest_first]
    if not candidates:
        raise ArtifactError(
            "there is no encoder yet in artifacts/pretrain or runs/pretrain. Name one by model_folder=FOLDER_OR_NAME, "
            "or run `make repro` first."
        )
    return candidates[0]
