"""heads: what each attention head knows of the relations of a treebank."""

from __future__ import annotations

import argparse
from pathlib import Path

import bertline
from bertline.cli.commands import newest_model
from bertline.cli.project import folder_or_name, of_caller
from bertline.foundation.errors import ConfigError
from bertline.foundation.files import write_json
from bertline.foundation.progress import say
from bertline.tasks.conll import read_treebank


def heads(arguments: list[str]) -> None:
    """Measure which attention head finds which syntactic relation of a treebank, compared with a fixed offset.

        bertline heads --treebank dev.conllu --test test.conllu --model FOLDER_OR_NAME
        bertline heads --treebank dev.conllu --ablate 100            also the loss without each head
        bertline heads --treebank dev.conllu --ablate 200 --task artifacts/export/docs_library --rows rows.csv

    Heads are chosen on the first file and scored on the second; a single file is cut in two halves. Without --model it
    takes the newest of artifacts/ and runs/. It writes heads.json and heads.png to --out (default: heads). --ablate
    takes that many sentences for the loss, and rows (CSV, columns text and label) for the accuracy of a task's model.
    """
    parser = argparse.ArgumentParser(prog="bertline heads", add_help=False)
    parser.add_argument("--treebank", type=of_caller, required=True)
    parser.add_argument("--test", type=of_caller)
    parser.add_argument("--model")
    parser.add_argument("--task")
    parser.add_argument("--rows", type=of_caller)
    parser.add_argument("--ablate", type=int, nargs="?", const=100)
    parser.add_argument("--min-examples", type=int, default=100)
    parser.add_argument("--out", type=of_caller, default=of_caller("heads"))
    parsed = parser.parse_args(arguments)
    if (parsed.task is None) != (parsed.rows is None) or (parsed.task is not None and parsed.ablate is None):
        raise ConfigError("--task needs --rows FILE (columns text and label) and --ablate, and --rows needs --task.")
    if parsed.min_examples < 1 or (parsed.ablate is not None and parsed.ablate < 1):
        raise ConfigError("--ablate and --min-examples must be at least 1.")
    name = newest_model() if parsed.model is None else folder_or_name(parsed.model)
    # These load torch and matplotlib.
    from bertline.inside.ablation import ablate_classifier, ablate_language_model, ablation_in_words
    from bertline.inside.heads import draw_heads, measure_heads, table_of

    model = bertline.load(str(name))
    task = None if parsed.task is None else bertline.load(str(folder_or_name(parsed.task)))
    say(f"model: {name}")
    if parsed.test is None:
        say(f"{parsed.treebank.name} is cut in two: its first half chooses heads and offsets, its second half scores")
    content = measure_heads(model, parsed.treebank, parsed.test, min_examples=parsed.min_examples)
    content["model"] = Path(str(name)).name
    ablation = []
    if parsed.ablate is not None:
        sentences = read_treebank(parsed.test or parsed.treebank)
        ablation.append(ablate_language_model(model, sentences, parsed.ablate))
    if task is not None:
        ablation.append(ablate_classifier(task, parsed.rows, parsed.ablate))
    write_json(parsed.out / "heads.json", {**content, "ablation": ablation})
    draw_heads(content, parsed.out / "heads.png")
    for text in (table_of(content), *content["notes"], *map(ablation_in_words, ablation)):
        say(f"\n{text}")
    say(f"\nwritten: {parsed.out}/heads.json, heads.png")
