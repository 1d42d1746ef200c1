"""What messages advise, applied in the command that printed them: keys are arguments, and commands are accepted."""

from __future__ import annotations

import copy
import functools
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dvc.utils.cli_parse import to_path_overrides
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from bertline.cli import configure as configure_module
from bertline.cli import finetune, predict
from bertline.cli.overrides import refuse_unread
from bertline.cli.task_arguments import OTHER_ARGUMENTS, SETTINGS, given_files
from bertline.foundation.errors import BertlineError, ConfigError
from bertline.kinds.build import build_task
from bertline.modeling.checkpoint import Checkpoint
from no_packages import NO_PACKAGES
from shipped_tasks import shipped_task, validated

ROOT = Path(__file__).resolve().parents[3]


@functools.cache
def composed(config: str, *overrides: str) -> Any:
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return OmegaConf.to_container(compose(config, overrides=list(overrides)))


def answered(folder: Path, arguments: list[str]) -> str:
    """The error of `bertline finetune ARGUMENTS`, up to its rows; empty if there is none."""
    asked = {"task": None, **copy.deepcopy(composed("finetune"))}
    for override in OverridesParser.create().parse_overrides(arguments):
        assert override.key_or_group in asked, f"{override.input_line} is no argument"
        asked[override.key_or_group] = override.value()
    asked["runtime"]["runs_folder"] = str(folder / "runs")
    name, own_paths = "", {}
    patch = pytest.MonkeyPatch()
    patch.setattr(finetune, "conf_task", shipped_task)
    try:
        splits: Any = {split: finetune.here(asked[split]) for split in ("train", "dev", "test")}
        given = given_files(finetune.here(asked["data"]), splits, asked["format"])
        name, task, own_paths = finetune.asked_task(asked, given)
        build_task(name, validated(name, task), NO_PACKAGES, folder / "rows")
    except BertlineError as error:
        return finetune.in_the_users_terms(str(error), name, own_paths)
    finally:
        patch.undo()
    return ""


def lines(*rows: str, number: int = 60, header: str = "text,label") -> str:
    """A table with these rows after many that are right."""
    return "\n".join([header, *(f"text {i},{'ab'[i % 2]}" for i in range(number)), *rows]) + "\n"


TAGGED = "".join(f"Ada{i} B-PER\nmet O\nBob{i} B-PER\n\nno{i} O\none O\n\n" for i in range(30))
ADVICE: dict[str, tuple[str, str, str, str]] = {
    # file, its content, arguments, what the message advises
    "an empty text": ("a.csv", lines(",a"), "", "on_bad_row=skip"),
    "too many fields": ("a.csv", lines("x,a,b"), "", "extra_fields=ignore"),
    "a quote": ("a.csv", lines('"open,a', "next,b"), "", "quoting=false"),
    "an encoding": ("a.csv", lines("caf\udce9,a"), "", "encoding=latin-1"),
    "an unknown label": ("a.csv", lines("x,c"), "labels=[a,b]", "labels=[a,b,c]"),
    "ambiguous columns": (
        "a.csv", lines(header="question,label,sentence").replace(",a\n", ",a,x\n").replace(",b\n", ",b,y\n"), "",
        "text_column=question",
    ),
    "free text as a label": ("a.csv", lines(header="label,text"), "", "label_column=text text_column=label"),
    "a pattern": ("a.csv", lines(), "label_pattern='(x)'", "label_pattern='(.)'"),
    "an unlabelled dev": ("a.csv", lines(), "dev=DEV", "dev=null"),
    "marked tokens": ("a.csv", lines(), "shared_tokens=marked", "shared_tokens=plain"),
    "a word as a number": ("a.csv", lines("x,1", "y,2"), "kind=regression", "on_bad_row=skip"),
    "a cosine of one text": (
        "a.csv", lines("x,1", "y,2"), "kind=regression on_bad_row=skip head=cosine", "head=linear",
    ),
    "no scale": ("a.csv", lines("x,1"), "kind=regression on_bad_row=skip low=3 high=2", "low=1 high=2"),
    "a column of tags": ("a.conll", TAGGED, "tag_column=3", "tag_column=1"),
    "no room for an answer": (
        "a.json", '{"data": [{"paragraphs": []}]}', "max_length=20", "max_question_length=2 window_overlap=1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ADVICE)
def test_what_a_message_of_finetune_advises_is_an_argument_of_it(tmp_path: Path, case: str) -> None:
    name, content, arguments, advice = ADVICE[case]
    (tmp_path / name).write_text(content, errors="surrogateescape")
    (tmp_path / "dev.csv").write_text(lines("x,-1", number=2))
    given = shlex.split(arguments.replace("DEV", str(tmp_path / "dev.csv")), posix=False)
    named = [f"train={tmp_path / name}" if "dev=" in arguments else f"data={tmp_path / name}", *given]
    message = answered(tmp_path, named)
    assert message
    assert not re.search(r"\b(source|tasks)\.[a-z]", message), "keys of a file are no arguments"
    for key in {key for key in {*SETTINGS, *OTHER_ARGUMENTS} if "_" in key} & set(re.findall(r"\w+", message)):
        assert key in composed("finetune"), f"{key} is no argument, and the message names it: {message}"
    advised = shlex.split(advice, posix=False)
    assert advised[0].partition("=")[0] in message, message
    if advice.endswith(("skip", "ignore", "true", "linear", "plain", "null")):
        assert advice in message or advice.replace("=", " to ") in message or "=null" in advice, message
    kept = [one for one in named if one.partition("=")[0] not in {two.partition("=")[0] for two in advised}]
    assert answered(tmp_path, [*kept, *advised]) != message


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


# ---- configure


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What `bertline configure ARGUMENTS` says, or the error that it ends with."""
    compose_anew = configure_module.composed
    defaults = {key: value for key, value in composed("config").items() if key != "task_name"}
    monkeypatch.setattr(
        configure_module, "composed", lambda given: compose_anew(given) if given else copy.deepcopy(defaults)
    )
    monkeypatch.chdir(ROOT)

    def run(*arguments: str) -> str:
        try:
            configure_module.configure(list(arguments))
        except BertlineError as error:
            return f"error: {error}"
        return capsys.readouterr().out

    return run


def test_the_overrides_of_an_advised_experiment_compose_as_dvc_reads_them(configure: Callable[..., str]) -> None:
    said = configure("evaluate.title='one, two: three'", "model=small")
    words = shlex.split(said.partition("dvc exp run ")[2])
    assert words[::2] == ["-S", "-S"]
    overrides = to_path_overrides(words[1::2])["params.yaml"]
    assert composed("config", *overrides)["evaluate"]["title"] == "one, two: three"


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
