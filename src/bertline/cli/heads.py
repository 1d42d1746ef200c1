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
from bertline.tasks.treebank import read_treebank


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
