"""Choices: nothing that a person or an experiment set is undone silently."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from bertline.cli.choices import choices_at_stake, header, lasting_choices

PLAIN = {"model": {"hidden_size": 128}, "optimizer": {"lr": 0.003}}
SET = {"model": {"hidden_size": 768}, "optimizer": {"lr": 0.003}}


@pytest.mark.parametrize(
    ("written", "chosen", "present", "composed", "at_stake"),
    [
        (SET, {"model.hidden_size": 768}, SET, PLAIN, {"model.hidden_size": (768, 128)}),
        (PLAIN, {}, PLAIN, {**PLAIN, "optimizer": {"lr": 0.001}}, {}),
        (PLAIN, {}, {**PLAIN, "optimizer": {"lr": 0.5}}, PLAIN, {"optimizer.lr": (0.5, 0.003)}),
    ],
    ids=["an experiment", "an edited conf", "an edited params.yaml"],
)
def test_what_composition_would_undo_is_at_stake(written, chosen, present, composed, at_stake) -> None:
    assert choices_at_stake(header(written, chosen), present, composed) == at_stake


def test_params_yaml_of_the_repository_is_what_configure_wrote() -> None:
    text = (Path(__file__).resolve().parents[3] / "params.yaml").read_text()
    content = OmegaConf.to_container(OmegaConf.create(text))
    assert choices_at_stake(text, {key: content[key] for key in content if key != "task_name"}, PLAIN) == {}


def test_a_newer_lasting_choice_replaces_the_older_one_of_its_key_only() -> None:
    saved = lasting_choices({}, {"model": "small", "corpus": "text"}, {"optimizer.lr": 0.001, "corpus.path": "/x"})
    merged = lasting_choices(saved, {"model": "base"}, {"optimizer.lr": 0.002})
    assert merged == {
        "defaults": [{"override /model": "base"}, {"override /corpus": "text"}, "_self_"],
        "optimizer": {"lr": 0.002},
        "corpus": {"path": "/x"},
    }


def test_a_group_that_is_added_stands_before_those_that_override() -> None:
    saved = lasting_choices({}, {"corpus": "sources", "+source@corpus.sources.wiki": "text"}, {})
    assert saved["defaults"] == [{"/source@corpus.sources.wiki": "text"}, {"override /corpus": "sources"}, "_self_"]
    again = lasting_choices(saved, {"source@corpus.sources.wiki": "wikiextractor"}, {"corpus.sources.wiki.path": "/w"})
    assert again["defaults"][0] == {"/source@corpus.sources.wiki": "wikiextractor"}
    assert again["corpus"] == {"sources": {"wiki": {"path": "/w"}}}


def test_another_option_of_a_group_drops_what_was_saved_for_the_one_before() -> None:
    saved = lasting_choices({}, {"corpus": "text"}, {"corpus.path": "/x", "optimizer.lr": 0.001})
    merged = lasting_choices(saved, {"corpus": "python_docs"}, {})
    assert merged == {"defaults": [{"override /corpus": "python_docs"}, "_self_"], "optimizer": {"lr": 0.001}}
    groups = {"corpus": "sources", "+source@corpus.sources.wiki": "text", "task@tasks.one": "cola"}
    saved = lasting_choices({}, groups, {"corpus.sources.wiki.path": "/w", "tasks.one.seed": 1})
    merged = lasting_choices(saved, {"corpus": "text"}, {})
    assert merged == {
        "defaults": [{"override /corpus": "text"}, {"override /task@tasks.one": "cola"}, "_self_"],
        "tasks": {"one": {"seed": 1}},
    }
