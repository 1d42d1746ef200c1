"""The whole configuration is checked before anything expensive starts; errors name key, value, rule and fix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

import shipped_tasks
from bertline.config import pipeline_config
from bertline.foundation.errors import ConfigError

Composed = Callable[..., dict[str, Any]]
CONF = Path(__file__).resolve().parents[2] / "conf"
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
STARTING = ("continued", "domain", "domain_mlm", "finetune")  # those that need a checkpoint


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_preset_is_valid_also_with_another_objective_optimizer_and_schedule(composed, experiment) -> None:
    given = [f"experiment={experiment}", *(["pretrain.start_from=some/model"] if experiment in STARTING else [])]
    assert pipeline_config(composed(*given)).evaluate.preset == experiment  # the report names it
    config = pipeline_config(composed(*given, "objective=mlm", "examples=full_sentences"))
    assert (config.objective.kind, config.examples.num_segments) == ("mlm", 1)
    config = pipeline_config(composed(*given, "optimizer=muon", "schedule=wsd"))
    assert (config.optimizer.kind, config.schedule.kind) == ("muon", "wsd")


PLAIN = ("tasks.docs_match.shared_tokens=plain", "tasks.docs_parameters.word_case=plain")


@pytest.mark.parametrize(
    "preset", ["roberta_base", "distilbert_base", "albert_base", "electra_small", "modernbert_base"]
)
def test_every_family_is_pretrained_by_masked_language_modelling_alone(composed: Composed, preset: str) -> None:
    model = pipeline_config(composed("experiment=mlm", f"model={preset}", *PLAIN)).model
    assert model.family == preset.partition("_")[0]
    assert model.hidden_size in (256, 768) and model.max_position_embeddings in (512, 8192)
    with pytest.raises(ConfigError, match=r"objective\.kind is mlm_nsp, which the pretraining of .* Use mlm"):
        pipeline_config(composed("experiment=bert_base", f"model={preset}"))


def test_marked_tokens_are_refused_where_the_model_or_the_tokenizer_shows_no_texts_of_a_pair(composed) -> None:
    with pytest.raises(ConfigError, match=r"docs_match\.shared_tokens is marked, .* WordPiece") as refused:
        pipeline_config(composed("experiment=mlm", "model=distilbert_base"))
    assert "docs_parameters.word_case is marked" in str(refused.value)
    pipeline_config(composed("experiment=mlm", "model=distilbert_base", *PLAIN))
    with pytest.raises(ConfigError, match=r"docs_match\.shared_tokens is marked"):
        pipeline_config(composed("experiment=mlm", "tokenizer=byte_bpe"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer=muon", r"optimizer\.kind is muon, .* ALBERT does not have. Use adamw"),
        ("runtime.packing=on", r"runtime\.packing is on, .* Use off"),
        ("pretrain.initial_embeddings=cooccurrence", r"pretrain\.initial_embeddings is cooccurrence, .* Use null"),
        ("+model.hidden_sise=64", r"model\.hidden_sise is not a setting of ALBERT .* Did you mean hidden_size\?"),
        ("model.family=gpt2", r"model_type is 'gpt2'; bertline reads bert, roberta"),
    ],
)
def test_what_a_wrapped_family_cannot_do_is_refused_by_name(composed: Composed, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pipeline_config(composed("model=albert_base", "experiment=mlm", override))


@pytest.mark.parametrize(
    "choice",
    [
        *(f"model={size}" for size in ("tiny", "mini", "small", "medium", "base", "large")),
        *(f"schedule={kind}" for kind in ("cosine", "constant", "wsd")),
        "optimizer=muon",
        *(f"corpus={kind}" for kind in ("text", "wikiextractor", "jsonl", "csv", "parquet")),
        *(f"runtime={machine}" for machine in ("gpu", "gpus", "nodes", "slurm")),
        *(f"sweep={search}" for search in ("default", "tpe_halving")),
        "examples=sentence_pairs_static",
        "objective=mlm examples=full_sentences",
        "tokenizer=wordpiece_cased",
        "tokenizer=byte_bpe tasks.docs_match.shared_tokens=plain",
        "tokenizer=extended pretrain.start_from=some/model",
    ],
)
def test_every_option_of_a_group_is_valid(composed: Composed, choice: str) -> None:
    pipeline_config(composed(*choice.split()))


def test_a_key_of_one_launcher_is_refused_by_another(composed: Composed) -> None:
    assert pipeline_config(composed("runtime/launcher=slurm", "runtime.launcher.account=physics"))
    with pytest.raises(ConfigError, match=r"runtime\.launcher.*account"):
        pipeline_config(composed("+runtime.launcher.account=physics"))


@pytest.mark.parametrize("task", shipped_tasks.NAMES)
def test_every_shipped_task_is_valid(composed: Composed, task: str) -> None:
    # What only the user knows (`???`) is any word here.
    left_open = OmegaConf.missing_keys(OmegaConf.create(shipped_tasks.shipped_task(task)))
    given = [f"tasks.mine.{key}=anything" for key in sorted(left_open)]
    assert "mine" in pipeline_config(composed(f"+task@tasks.mine={task}", *given)).tasks


@pytest.mark.parametrize("size", ["base", "large"])
def test_the_paper_presets_have_the_settings_of_a2(composed: Composed, size: str) -> None:
    config = pipeline_config(composed(f"experiment=bert_{size}"))
    phases = [(phase.steps, phase.max_length, phase.global_batch_size) for phase in config.pretrain.phases]
    assert phases == [(900_000, 128, 256), (100_000, 512, 256)]
    assert (config.optimizer.lr, config.optimizer.weight_decay) == (1e-4, 0.01)
    assert (config.schedule.kind, config.schedule.num_warmup_steps) == ("linear", 10_000)
    assert config.model.hidden_dropout_prob == config.model.attention_probs_dropout_prob == 0.1
    assert config.tokenizer.vocab_size == 30_522


PHASE = "max_length: 64, global_batch_size: 8"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        # An unknown, missing or mistyped key.
        (["+model.hiden_size=3"], r"model\.hiden_size is not a known key\. Did you mean hidden_size\?"),
        (["~model.hidden_size"], r"model\.hidden_size is missing"),
        (["optimizer.lr=fast"], r"optimizer\.lr is 'fast': .*number"),
        (["optimizer.lr='3e-3'"], r"optimizer\.lr is '3e-3'"),
        (["tokenizer.lowercase=1"], r"tokenizer\.lowercase is 1: .*bool"),
        ([f"pretrain.phases=[{{steps: 1.5, {PHASE}}}]"], r"pretrain\.phases\[0\]\.steps is 1\.5"),
        ([f"pretrain.phases=[{{step: 5, {PHASE}}}]"], r"phases\[0\]\.step is not a known key"),
        (["optimizer.lr=-1"], r"optimizer.*lr must be above 0, found -1"),
        (["schedule.kind=linaer"], r"schedule\.kind is 'linaer'.*Did you mean linear\?"),
        (["runtime.device=gpu"], r"runtime\.device is 'gpu'"),
        (["tasks.docs_match.metric=acc"], r"tasks\.docs_match\.metric is 'acc'"),
        (["examples.masking.mask_prob=1.5"], r"mask_prob must be above 0 and below 1, found 1\.5"),
        (["pretrain.mask_predictions.sentences=[no blank]"], r"needs a \[MASK\], found 'no blank'"),
        (["+sweep.space.learning_rat={kind: choice, values: [1]}"], r"space\.learning_rat is not a field"),
        (["+tasks.docs_match.space.epochs={kind: choice, values: [1]}"], r"docs_match\.space\.epochs is not a field"),
        # Several at once.
        (["+model.a=1", "+optimizer.b=2"], r"(?s)model\.a.*optimizer\.b"),
        # Rules between sections.
        (["corpus=text", "corpus.validation_fraction=0"], r"corpus\.validation_fraction is 0, .* above 0"),
        (["examples.lengths=[1024]"], r"examples\.lengths\[0\] is 1024.*positions for 512"),
        (["examples.lengths=[128]"], r"pretrain\.phases\[0\]\.max_length is 64.*\[128\]"),
        (["schedule.num_warmup_steps=99999999"], r"num_warmup_steps is 99999999, more than"),
        (["schedule=wsd", "schedule.num_warmup_steps=99999999"], r"num_warmup_steps is 99999999, more than"),
        (["schedule=wsd", "schedule.num_decay_steps=99999999"], r"steps is 100 and .*steps 99999999, together more"),
        (["objective=mlm"], r"objective\.kind is mlm.* 1 segment.*examples have 2\. Use examples=full_sentences"),
        (
            ["objective=mlm_nsp_shared", "model.num_hidden_layers=1"],
            r"kind is mlm_nsp_shared.* at least 2.*layers is 1",
        ),
        (["objective=mlm_sop"], r"swapped_prob is null, but objective\.kind is mlm_sop.*Use examples=sentence_order"),
        (["examples=sentence_order"], r"prob is 0.5, but objective\.kind is mlm_nsp.*Use examples=sentence_pairs"),
        (["examples=full_sentences"], r"objective\.kind is mlm_nsp.* 2 segment.*have 1\. Use examples=sentence_pairs"),
        (["pretrain.start_from=some/model"], r"start_from is 'some/model'.*tokenizer=existing"),
        (["tokenizer=extended", "tokenizer.path=some/model"], r"kind is extended.*pretrain\.start_from is null"),
        (["tasks.docs_match.max_length=9999"], r"tasks\.docs_match\.max_length is 9999.*positions"),
        (
            ["sweep.sampler={kind: grid}", "+sweep.space.weight_decay={kind: log_uniform, low: 0.1, high: 0.2}"],
            r"a grid needs choices|not a known key",
        ),
        (["runtime/launcher=slurm", "runtime.launcher.sweep_tasks=2"], r"sweep_tasks is 2, .* share a study in SQLite"),
    ],
)
def test_what_is_wrong_is_named_with_key_value_rule_and_fix(composed, overrides, message) -> None:
    with pytest.raises(ConfigError, match=message):
        pipeline_config(composed(*overrides))


def test_a_run_cut_short_inside_its_warm_up_is_valid(composed: Composed) -> None:
    assert pipeline_config(composed("pretrain.max_steps=5")).pretrain.num_steps == 5


def test_both_rates_of_muon_are_one_unless_they_are_given(composed: Composed) -> None:
    optimizer = pipeline_config(composed("optimizer=muon", "optimizer.lr=0.25")).optimizer
    assert optimizer.kind == "muon"
    assert optimizer.adamw_lr == 0.25
    other = pipeline_config(composed("optimizer=muon", "optimizer.lr=0.25", "optimizer.adamw_lr=0.5")).optimizer
    assert (other.lr, other.adamw_lr) == (0.25, 0.5)


def test_contrastive_learning_needs_pairs_of_one_document_in_whole_groups(composed: Composed) -> None:
    given = ["objective=contrastive", "examples=segment_pairs", "examples.lengths=[16,64]"]
    config = pipeline_config(composed(*given))
    assert (config.objective.kind, config.examples.random_next_prob) == ("contrastive", 0.0)
    with pytest.raises(ConfigError, match=r"random_next_prob is 0.5, .* one document. Use examples=segment_pairs"):
        pipeline_config(composed("objective=contrastive"))
    with pytest.raises(ConfigError, match=r"phases\[0\].global_batch_size is \d+, not a multiple of"):
        pipeline_config(composed(*given, "objective.group_size=37"))


@pytest.mark.parametrize("key", ["group_size=1", "neighbours=3", "temperature=0.0", "mlm_weight=-0.1", "pooling=max"])
def test_a_contrastive_objective_that_cannot_be_is_refused(composed: Composed, key: str) -> None:
    with pytest.raises(ConfigError, match=key.partition("=")[0]):
        pipeline_config(composed("objective=contrastive", "examples=segment_pairs", f"objective.{key}"))


@pytest.mark.parametrize("name", ["a/b", "a@b", "a b", ".hidden", "", "a.b", "-a", "ä", "a\nb", ".."])
def test_a_task_name_that_is_no_folder_and_no_stage_is_refused(composed: Composed, name: str) -> None:
    mapping = composed()
    mapping["tasks"][name] = next(iter(mapping["tasks"].values()))
    with pytest.raises(ConfigError, match="cannot be a folder, a DVC stage and a name in MLflow") as error:
        pipeline_config(mapping)
    assert repr(name) in str(error.value)


def test_plain_names_of_tasks_are_taken(composed: Composed) -> None:
    mapping, names = composed(), ("a", "sst-2", "_x", "2020")
    mapping["tasks"] |= dict.fromkeys(names, next(iter(mapping["tasks"].values())))
    assert set(names) <= set(pipeline_config(mapping).tasks)
