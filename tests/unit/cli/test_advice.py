"""What messages advise, applied in the command that printed them: keys are arguments, and commands are accepted."""

from __future__ import annotations

import copy
import functools
import re
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from bertline.cli import finetune, predict
from bertline.cli.overrides import refuse_unread
from bertline.cli.task_arguments import OTHER_ARGUMENTS, SETTINGS
from bertline.foundation.errors import ConfigError
from bertline.modeling.checkpoint import Checkpoint

ROOT = Path(__file__).resolve().parents[3]


@functools.cache
def composed(config: str, *overrides: str) -> Any:
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return OmegaConf.to_container(compose(config, overrides=list(overrides)))


def test_a_message_of_a_stage_names_arguments_and_the_users_own_file() -> None:
    message = (
        "linked/a.csv:3: tasks.mine.source.text_column is 'x'. Set source.on_bad_row=skip, tasks.NAME.num_trials or "
        "tasks.mine.fine_tuning.num_epochs; of mine, tasks.mine.source.name and labels.csv; sweep.space.learning_rate"
    )
    in_conf = {"source": {"name": None}}
    assert finetune.in_the_users_terms(message, "mine", {"linked/a.csv": "source.text_column.csv"}, in_conf) == (
        "source.text_column.csv:3: text_column is 'x'. Set on_bad_row=skip, trials or "
        "sweep.fine_tuning.num_epochs; of mine, task.source.name and labels.csv; learning_rate"
    )


def test_every_key_of_a_task_that_files_can_be_is_an_argument() -> None:
    arguments = composed("finetune")
    assert not SETTINGS - arguments.keys()
    for name in OTHER_ARGUMENTS.values():
        node = arguments
        for part in name.split("."):
            assert part in node, name
            node = node[part]


@pytest.mark.parametrize(
    ("config", "override", "said"),
    [
        ("finetune", "+on_bad_rows=skip", "Did you mean on_bad_row?"),
        ("finetune", "+search.factor=2", "Did you mean search.rate_factor?"),
        ("finetune", "+tasks.mine.labels=[a,b]", "reads nothing of tasks. Leave it out"),
        ("finetune", "optimizer.lr=1", "reads nothing of optimizer"),
        ("finetune", "corpus=text", "reads nothing of corpus"),
        ("glue", "schedule.num_warmup_steps=1", "reads nothing of schedule"),
        ("predict", "+text=body", "nothing reads text"),
        ("predict", "+sweep.seed=1", "nothing reads sweep.seed"),
        ("config", "+epochs=3", "nothing reads epochs"),
    ],
)
def test_an_override_that_nothing_reads_is_an_error(config: str, override: str, said: str) -> None:
    ignored = {"finetune": finetune.IGNORED, "glue": ("schedule",)}.get(config, ())
    with pytest.raises(ConfigError, match=re.escape(said)):
        refuse_unread([override], config, ignored)


@pytest.mark.parametrize(
    ("config", "override"),
    [
        ("finetune", "on_bad_row=skip"), ("finetune", "+on_bad_row=skip"), ("finetune", "pretrain.start_from=x"),
        ("finetune", "task=trec"), ("finetune", "+task.source.foo=1"), ("finetune", "sweep.num_seeds=1"),
        ("finetune", "sweep=tpe_halving"), ("finetune", "runtime/launcher=slurm"), ("predict", "input='a b'"),
        ("config", "+task@tasks.mine=table"), ("config", "+sweep.space.dropout_prob={kind: choice, values: [0]}"),
        ("config", "~task@tasks.docs_match"), ("config", "+source@corpus.sources.a=text"), ("plan", "plan.device=t4"),
    ],
)  # fmt: skip
def test_an_override_that_something_reads_or_checks_is_none(config: str, override: str) -> None:
    refuse_unread([override], config, finetune.IGNORED if config == "finetune" else ())


@pytest.mark.parametrize("given", [("sweep.fine_tuning.learning_rate=0.001",), ()])
def test_a_learning_rate_that_is_given_is_the_one_taken(
    monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]
) -> None:
    asked = copy.deepcopy(composed("finetune", *given))
    monkeypatch.setattr(finetune, "given_overrides", lambda: list(given))
    config = type("Config", (), {"hidden_size": 768})
    monkeypatch.setattr(Checkpoint, "open", lambda _: type("Opened", (), {"config": config}))
    assert finetune.recipe_of(asked, [Path()])["fine_tuning"]["learning_rate"] == (0.001 if given else 5e-5)


def test_quick_trains_no_encoder_in_one_process_and_searches_nothing() -> None:
    asked = composed("finetune", "quick=true", "learning_rate=1e-3")
    recipe = finetune.recipe_of(asked, [Path()])
    assert recipe["fine_tuning"]["method"] == "frozen" and not recipe["space"]
    assert finetune.runtime_of(asked)["sweep_workers"] in (1, None)  # None: on a GPU
    with pytest.raises(ConfigError, match="leave trials out"):
        finetune.recipe_of({**asked, "trials": 3}, [Path()])


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["top_k=3"], "documents=x"), (["document_id_column=x"], "documents=x"),
        (["batch_size=8"], "task_name=embed"), (["task_name=embed", "probabilities=3"], "task_name=none"),
        (["task_name=embed", "coverage=0.9"], "task_name=none"),
    ],
)  # fmt: skip
def test_an_argument_of_predict_that_nothing_reads_is_an_error_that_names_what_it_is_for(
    monkeypatch: pytest.MonkeyPatch, given: list[str], wanted: str
) -> None:
    def check(*overrides: str) -> None:
        monkeypatch.setattr(predict, "given_overrides", lambda: list(overrides))
        asked = copy.deepcopy(composed("predict"))
        predict.check(
            asked
            | dict(one.split("=") for one in overrides)
            | {"output": "x.jsonl", "top_k": 3, "batch_size": 8, "probabilities": 3}
        )

    with pytest.raises(ConfigError, match="means nothing here: it is for"):
        check(*given)
    check(*(one for one in given if one.partition("=")[0] != wanted.partition("=")[0]), wanted)
