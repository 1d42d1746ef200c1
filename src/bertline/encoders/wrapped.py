"""Models of transformers with the interface of bertline's own, for the families that are not BERT's layers.

Shapes as in `bertline.modeling.bert`.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar

import torch
import transformers
from torch import Tensor, nn

from bertline.foundation.errors import ArtifactError, ConfigError
from bertline.foundation.files import write_json
from bertline.foundation.progress import warn
from bertline.foundation.seeds import seed_for
from bertline.foundation.validation import closest
from bertline.modeling.attention import AttentionKind
from bertline.modeling.bert import EncodedInDetail, EncoderOutput, LanguageModelOutput
from bertline.modeling.checkpoint import MLM_HEAD, POSITIONS, WEIGHTS_NAME, WRAPPER, Checkpoint, model_config_in
from bertline.modeling.config import ModelConfig
from bertline.modeling.families import CONFIG_NAME, FAMILIES, GENERATOR, family_in
from bertline.modeling.heads import AnswerLogits
from bertline.modeling.huggingface import refuse_partial
from bertline.modeling.initialization import initialize
from bertline.modeling.layers import LayerDetail, gather_positions
from bertline.modeling.weight_files import require_finite, write_weights
from bertline.tokenization.tokenizer import Tokenizer

_CLASSES = {
    "sequence": transformers.AutoModelForSequenceClassification,
    "pair": transformers.AutoModelForSequenceClassification,
    "tokens": transformers.AutoModelForTokenClassification,
    "answers": transformers.AutoModelForQuestionAnswering,
    "mlm": transformers.AutoModelForMaskedLM,
    "pretraining": transformers.AutoModelForPreTraining,
    "detector": transformers.ElectraForPreTraining,
    "encoder": transformers.AutoModel,
}
# Name of ALBERT's head of sentence order.
_SENTENCE_ORDER = "sop_classifier"
Dropouts = tuple[float, float]
"""Dropout rates of hidden states and of attention."""


class WrappedEncoder(nn.Module):
    """An encoder of transformers with the interface of `BertModel`.

    Args:
        hf: Model without a head, as `AutoModel` makes it.
        config: What bertline's other code reads of its architecture.
        vocab_size: Number of word embeddings.
        pad_token_id: Id of the padding token.
    """

    def __init__(self, hf: Any, config: ModelConfig, *, vocab_size: int, pad_token_id: int) -> None:
        super().__init__()
        self.hf = hf
        self.config = config
        self.vocab_size = vocab_size
        self.pad_token_id = pad_token_id
        self._takes_types = "token_type_ids" in signature(hf.forward).parameters
        self._wrapping: Any = FAMILIES[config.family].wrapping

    @property
    def layers(self) -> list[nn.Module]:
        """Layers that have weights of their own, the lowest first; ALBERT has one for all."""
        return list(self.hf.get_submodule(self._wrapping.layers))

    def keep_layers(self, chosen: list[int]) -> None:
        """Keep these layers alone. ALBERT's groups of layers stay, and are computed fewer times.

        Raises:
            ConfigError: The groups do not divide the number of layers.
        """
        settings, (parent, _, last) = self.hf.config, self._wrapping.layers.rpartition(".")
        if groups := getattr(settings, "num_hidden_groups", None):
            if len(chosen) % groups:
                raise ConfigError(
                    f"student_layers is {len(chosen)}, no multiple of the {groups} groups of layers that share weights "
                    f"(num_hidden_groups). Give a multiple, such as {groups}."
                )
        else:
            setattr(self.hf.get_submodule(parent), last, nn.ModuleList(self.layers[place] for place in chosen))
        if getattr(settings, "layer_types", None) is not None:  # of ModernBERT: which attend globally
            settings.layer_types = [settings.layer_types[place] for place in chosen]
        settings.num_hidden_layers = len(chosen)

    @property
    def below_layers(self) -> list[nn.Module]:
        """Modules that the first layer reads or that all layers share, as relative positions."""
        outside = tuple(f"{name}." for name in (self._wrapping.layers, *self._wrapping.above_layers))
        return [
            module
            for name, module in self.hf.named_modules()
            if name and not any(True for _ in module.children()) and not f"{name}.".startswith(outside)
        ]

    @property
    def embeddings(self) -> Any:
        """Embeddings of transformers."""
        return self.hf.embeddings

    @property
    def word_embeddings(self) -> Tensor:
        """[V, E]; E is less than the hidden size where embeddings are factorised (ALBERT, ELECTRA)."""
        return self.hf.get_input_embeddings().weight

    @property
    def pooler(self) -> Any:
        """Pooler of the first position; None if there is none."""
        return getattr(self.hf, "pooler", None)

    def inputs(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None) -> dict[str, Tensor]:
        """Return the arguments of the model of transformers."""
        inputs = {"input_ids": input_ids}
        inputs["attention_mask"] = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        if self._takes_types:
            # A model with a single token type has it in both segments of a pair.
            is_single = self.config.type_vocab_size < 2
            inputs["token_type_ids"] = torch.zeros_like(token_type_ids) if is_single else token_type_ids
        return inputs

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None, masks: None = None
    ) -> EncoderOutput:
        """Encode sequences as `BertModel.forward` does."""
        output = self.hf(**self.inputs(input_ids, token_type_ids, attention_mask))
        states = output.last_hidden_state
        return EncoderOutput(states, getattr(output, "pooler_output", None), states)

    def forward_in_detail(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None
    ) -> EncodedInDetail:
        """Encode like `forward`, keeping hidden states and attention probabilities of every layer."""
        chosen = self.hf.config._attn_implementation
        self.hf.set_attn_implementation("eager")  # fused kernels keep no probabilities
        try:
            inputs = self.inputs(input_ids, token_type_ids, attention_mask)
            output = self.hf(**inputs, output_hidden_states=True, output_attentions=True)
        finally:
            self.hf.set_attn_implementation(chosen)
        # Behind the last layer some families have a norm, which is part of what an encoder returns.
        states = (*output.hidden_states[:-1], output.last_hidden_state)
        return EncodedInDetail(states, tuple(LayerDetail(probabilities) for probabilities in output.attentions))


class WrappedModel(nn.Module):
    """A model of transformers with a head, with the interface of bertline's models."""

    uses_pooler: ClassVar[bool] = False
    bert: WrappedEncoder

    def __init__(self, hf: Any, encoder: WrappedEncoder) -> None:
        super().__init__()
        self.hf = hf
        # Not registered as a submodule: its weights are a part of `hf`, and each must have one name.
        object.__setattr__(self, "bert", encoder)

    @property
    def head(self) -> list[tuple[str, nn.Module]]:
        """The modules behind the encoder by name, in the order in which they compute."""
        return [(name, module) for name, module in self.hf.named_children() if name != self.hf.base_model_prefix]

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor | AnswerLogits:
        """Return logits as the class of bertline with this head does."""
        output = self.hf(**self.bert.inputs(input_ids, token_type_ids, attention_mask))
        return AnswerLogits(output.start_logits, output.end_logits) if "start_logits" in output else output.logits


class WrappedMaskedLM(WrappedModel):
    """A masked language model of transformers, with the interface of `modeling.bert.BertForMaskedLM`."""

    attention: ClassVar[AttentionKind] = "plain"
    """For the records alone: transformers chooses the kernel."""

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        attention_mask: Tensor | None,
        masked_positions: Tensor,
        masks: None = None,
    ) -> LanguageModelOutput:
        """Compute vocabulary logits [B, P, V] at the masked positions only; see `MaskedLanguageModel.forward`."""
        encoded = self.bert(input_ids, token_type_ids, attention_mask)
        return self._read(encoded._replace(hidden_states=gather_positions(encoded.hidden_states, masked_positions)))

    def forward_everywhere(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None = None
    ) -> LanguageModelOutput:
        """Compute vocabulary logits at every position, [B, S, V]."""
        return self._read(self.bert(input_ids, token_type_ids, attention_mask))

    def _read(self, encoded: EncoderOutput) -> LanguageModelOutput:
        logits = self.mlm_logits(encoded.hidden_states)
        if (order := dict(self.head).get(_SENTENCE_ORDER)) is None:
            return LanguageModelOutput(logits)
        return LanguageModelOutput(logits, order(encoded.pooled), encoded.before_last)

    def mlm_logits(self, states: Tensor) -> Tensor:
        """Return vocabulary logits [..., V] for hidden states [..., H]."""
        for name, module in self.head:
            states = states if name == _SENTENCE_ORDER else module(states)
        return states


class WrappedReplacedToken(WrappedMaskedLM):
    """ELECTRA's detector as encoder, with the generator that fills the blanks whose tokens it judges.

    They share the embeddings of tokens, positions and token types (Clark et al., arXiv 2003.10555, section 3.2).
    """

    def __init__(self, hf: Any, encoder: WrappedEncoder, generator: WrappedMaskedLM) -> None:
        super().__init__(hf, encoder)
        self.generator = generator
        shared, embeddings = hf.base_model.embeddings, generator.hf.base_model.embeddings
        for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
            setattr(embeddings, name, getattr(shared, name))
        generator.hf.tie_weights()

    def forward(self, *inputs: Any, **named: Any) -> LanguageModelOutput:  # type: ignore[override]
        """Fill blanks by the generator; see `WrappedMaskedLM.forward`."""
        return self.generator(*inputs, **named)

    def forward_everywhere(self, *inputs: Any, **named: Any) -> LanguageModelOutput:
        """Return the generator's logits at every position, [B, S, V]."""
        return self.generator.forward_everywhere(*inputs, **named)

    def detect(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return the detector's logits [B, S]; above 0 means that the token is not the text's own."""
        return self.hf(**self.bert.inputs(input_ids, token_type_ids, attention_mask)).logits


def load_wrapped(
    checkpoint: Checkpoint,
    head: str,
    *,
    num_outputs: int | None = None,
    is_new: bool = False,
    dropout_probs: Dropouts | None = None,
    seed: int = 0,
) -> Any:
    """Load a wrapped family with a head; see `encoders.load_model`.

    `pretraining` is both heads of ALBERT; `encoder` is none, and gives a `WrappedEncoder` in place of a `WrappedModel`.
    """
    if head == "mlm" and not is_new and not checkpoint.has_mlm_head:
        raise ArtifactError(
            f"{checkpoint.folder} has no masked language model head, so it fills no blanks: it is an encoder saved "
            "alone, or a detector, as ELECTRA's discriminator. Take a folder with that head, or another kind of task."
        )
    settings = {"num_labels": 2 if head == "answers" else num_outputs} if num_outputs or head == "answers" else {}
    hf, encoder, drawn = _loaded(checkpoint, head, settings, is_new=is_new, dropout_probs=dropout_probs, seed=seed)
    if head == "encoder":
        return encoder
    if head in ("mlm", "pretraining"):
        return WrappedMaskedLM(hf, encoder)
    model = WrappedModel(hf, encoder)
    for name, module in model.head if is_new else ():
        # A part of the masked language model's head stays (ModernBERT), one of another task's does not.
        if not checkpoint.has_mlm_head or any(key.startswith(f"{name}.") for key in drawn):
            initialize(module, model.bert.config, seed=seed_for(seed, name))
    return model


def start_replaced_token(
    config: ModelConfig, tokenizer: Tokenizer, generator_width: float, checkpoint: Checkpoint | None, *, seed: int
) -> WrappedReplacedToken:
    """Return ELECTRA's detector and generator: drawn, or those of a checkpoint and of `generator/` in it.

    Raises:
        ArtifactError: The checkpoint has no generator.
    """
    if checkpoint is None:
        sizes = ("hidden_size", "num_attention_heads", "intermediate_size")
        narrow: Any = {name: int(getattr(config, name) * generator_width) for name in sizes}
        narrower = replace(config, **narrow, own={**config.own, **narrow})
        detector = start_language_model(config, tokenizer, "pretraining", None, seed=seed)
        generator = start_language_model(narrower, tokenizer, "mlm", None, seed=seed_for(seed, GENERATOR))
    elif not (folder := checkpoint.folder / GENERATOR).is_dir():
        raise ArtifactError(
            f"{checkpoint.folder} has no {GENERATOR}/, without which no token is replaced. Put the folder of the "
            f"generator that belongs to this detector there, or continue with objective=mlm from a generator."
        )
    else:
        detector = _read_to_train(config, checkpoint, "detector", seed=seed)
        generator = _read_to_train(config, Checkpoint.open(folder), "mlm", seed=seed)
    return WrappedReplacedToken(detector.hf, detector.bert, generator)


def _read_to_train(config: ModelConfig, checkpoint: Checkpoint, head: str, *, is_new: bool = False, seed: int) -> Any:
    dropouts = (config.hidden_dropout_prob, config.attention_probs_dropout_prob)
    return load_wrapped(checkpoint, head, is_new=is_new, dropout_probs=dropouts, seed=seed)


def start_language_model(
    config: ModelConfig, tokenizer: Tokenizer, head: str, checkpoint: Checkpoint | None, *, seed: int
) -> WrappedMaskedLM:
    """Return a model to pretrain: a checkpoint's, whose head is random if it lacks one, or one that transformers draws;
    `head` as in `load_wrapped`."""
    if checkpoint is not None:
        return _read_to_train(config, checkpoint, head, is_new=not checkpoint.has(MLM_HEAD), seed=seed)
    ids = {
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.cls_id,
        "cls_token_id": tokenizer.cls_id,
        "eos_token_id": tokenizer.sep_id,
        "sep_token_id": tokenizer.sep_id,
    }
    known = transformers.AutoConfig.for_model(config.family).to_dict()
    ids = {name: number for name, number in ids.items() if name in known}
    sizes = {"vocab_size": tokenizer.vocab_size}
    settings = transformers.AutoConfig.for_model(config.family, **{**config.own, **sizes, **ids})
    with _quiet_and_seeded(seed):
        hf = _CLASSES[head].from_config(settings)
    return WrappedMaskedLM(hf, WrappedEncoder(hf.base_model, config, pad_token_id=tokenizer.pad_id, **sizes))


def model_section(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model section of a configuration with the keys of `ModelConfig`.

    A family's sizes have the names of its config class in transformers, which gives what is missing too; BERT's names
    go before them. A section with `own` has our names already.

    Raises:
        ArtifactError: The family is unknown, or its config class has no such setting.

    >>> model_section({"family": "distilbert", "dim": 96, "n_layers": 3})["num_hidden_layers"]
    3
    """
    if "own" in section:
        return dict(section)
    family = family_in({"model_type": section["family"]}, "model.family")
    own = {key: value for key, value in section.items() if key not in ("family", *family.config_keys)}
    # An experiment names dropout rates, for example, as BERT does, whatever the family.
    own |= {theirs: section[ours] for ours, theirs in family.config_keys.items() if ours in section}
    settings = transformers.AutoConfig.for_model(family.model_type).to_dict()
    others = family.wrapping.other_settings if family.wrapping is not None else ()
    for name in own.keys() - settings.keys() - set(others):
        hint = closest(name, settings)
        raise ArtifactError(f"model.{name} is not a setting of {family.title} in transformers.{hint}")
    config = model_config_in(family.config_to_bert({**settings, **own, "architectures": None}), family, "model")
    return {**asdict(config), "own": own if family.wrapping is not None else {}}


def save_wrapped(
    model: WrappedModel | WrappedEncoder,
    folder: Path,
    *,
    id2label: Mapping[int, str] | None = None,
    problem_type: str | None = None,
) -> None:
    """Write a wrapped model; see `modeling.huggingface.save_adopted`."""
    hf = model.hf
    encoder = model if isinstance(model, WrappedEncoder) else model.bert
    if id2label and isinstance(model, WrappedModel):
        hf.config.id2label = dict(id2label)
        hf.config.label2id = {name: number for number, name in id2label.items()}
    hf.config.problem_type = problem_type
    hf.config.architectures = [type(hf).__name__]
    hf.config.dtype = torch.float32
    if encoder.config.type_vocab_size:
        hf.config.type_vocab_size = encoder.config.type_vocab_size  # marks of tokens add types
    tied = hf.all_tied_weights_keys
    write_weights({name: each for name, each in hf.state_dict().items() if name not in tied}, folder / WEIGHTS_NAME)
    write_json(folder / CONFIG_NAME, json.loads(hf.config.to_json_string()))
    if isinstance(model, WrappedReplacedToken):
        save_wrapped(model.generator, folder / GENERATOR)


def _loaded(
    checkpoint: Checkpoint,
    head: str,
    settings: dict[str, Any],
    *,
    is_new: bool,
    dropout_probs: Dropouts | None,
    seed: int,
) -> tuple[Any, WrappedEncoder, list[str]]:
    """Return the model of transformers, its encoder, and the names of its weights that the folder does not have."""
    sizes, family, folder, shapes = checkpoint.config, checkpoint.family, checkpoint.folder, checkpoint.shapes
    largest = max(size for shape in shapes.values() for size in shape)
    assert family.wrapping is not None  # others are not loaded here
    counts = ["num_labels", "position_buckets", *["max_position_embeddings"] * (POSITIONS in shapes)]
    for key, value in checkpoint.settings.items():  # before memory is taken for what config.json says
        if (key.endswith("_size") or key in counts) and isinstance(value, int) and value > largest:
            raise ArtifactError(f"{folder}: no weight has the size {value} that config.json gives {key}.")
    try:
        with _quiet_and_seeded(seed):
            config = transformers.AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, **settings
            )
            if dropout_probs is not None:
                for key, value in config.to_dict().items():
                    if "dropout" in key and isinstance(value, int | float):
                        setattr(config, key, dropout_probs["attention" in key])
            if hasattr(config, "legacy"):
                config.legacy = True  # the one of two equal heads that needs no word embeddings handed to it
            hf, found = _CLASSES[head].from_pretrained(
                folder,
                key_mapping={WRAPPER: "", **family.wrapping.other_names},
                config=config,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,  # of a head that is drawn again; others are refused below
                output_loading_info=True,
            )
    except Exception as error:  # each setting of a family has errors of its own
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        raise ArtifactError(
            f"{folder}: transformers makes no {family.title} of it ({reason}). Copy it again."
        ) from error
    _require_whole(folder, hf, found, is_new=is_new)
    require_finite(dict(hf.named_parameters()), folder)
    if dropout_probs is not None:
        hidden, attention = dropout_probs
        sizes = replace(sizes, hidden_dropout_prob=hidden, attention_probs_dropout_prob=attention)
    encoder = WrappedEncoder(
        hf.eval().base_model, sizes, vocab_size=checkpoint.vocab_size, pad_token_id=checkpoint.pad_token_id
    )
    return hf, encoder, [*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])]


def _require_whole(folder: Path, hf: Any, found: Mapping[str, Any], *, is_new: bool) -> None:
    """Check what transformers found: only a head and a pooler may be missing, and those with a warning."""
    prefix = f"{hf.base_model_prefix}." if hf.base_model is not hf else ""
    pooler = f"{prefix}pooler."

    def of_encoder(names: Any) -> list[str]:
        return sorted(name for name in names if name.startswith(prefix) and not name.startswith(pooler))

    lost, missing = of_encoder(found["missing_keys"]), sorted(found["missing_keys"])
    unknown = of_encoder(found["unexpected_keys"]) if prefix else []
    shapes = (each for each in sorted(found["mismatched_keys"]) if not is_new or each[0].startswith(prefix))
    refuse_partial(folder, lost, unknown, shapes)
    # A bare encoder is read for its hidden states, not for its pooler.
    drawn = [name for name in missing if prefix or not name.startswith(pooler)]
    if drawn and not is_new:
        warn(f"{folder} lacks {', '.join(drawn[:4])}: these start from random weights.")


@contextmanager
def _quiet_and_seeded(seed: int) -> Iterator[None]:
    """Seed PyTorch's generator of the CPU inside, silence transformers, and restore both at the end: what is wrong with
    a folder is checked and said here."""
    logging = transformers.utils.logging
    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()
