"""The families of encoders, and how the names in their folders are translated to BERT's.

RoBERTa and its multilingual and French kin, and DistilBERT, are BERT's own layers under other names. They are adopted:
they load into `BertModel`; the code that reads folders sees BERT's names, as in `transformers.BertForPreTraining`, and
what is written has the family's own again. Every other family is wrapped: its model is the class of transformers
(`bertline.encoders`), which reads and writes the folder; here only its config.json and the names of its heads are read.

References: Liu et al., RoBERTa (arXiv 1907.11692); Conneau et al., XLM-R (arXiv 1911.02116); Martin et al., CamemBERT
(arXiv 1911.03894); Sanh et al., DistilBERT (arXiv 1910.01108); Lan et al., ALBERT (arXiv 1909.11942); Clark et al.,
ELECTRA (arXiv 2003.10555); Song et al., MPNet (arXiv 2004.09297); He et al., DeBERTaV3 (arXiv 2111.09543); Warner et
al., ModernBERT (arXiv 2412.13663).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bertline.foundation.errors import ArtifactError

CONFIG_NAME = "config.json"
GENERATOR = "generator"
"""Folder of ELECTRA's generator, in that of the detector that was trained with it."""
Ability = Literal[
    "packing",
    "compiler",
    "muon",
    "new_words",
    "initial_embeddings",
    "distillation",
    "masks_by_token",
    "forecast",
    "attention_vectors",
    "onnx",
]
"""What only the encoders can do whose layers are bertline's own."""
Names = tuple[tuple[str, str], ...]
"""Pairs of a part of a name in BERT's folders, and of the same in the family's; the first that fits is replaced."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wrapping:
    """Where the parts of a wrapped encoder are, in the class of transformers without a head."""

    layers: str = "encoder.layer"
    """Name of the list of layers that have weights of their own."""
    above_layers: tuple[str, ...] = ("pooler",)
    """Names of the modules that read the last layer; all others are below the first one."""
    other_settings: tuple[str, ...] = ()
    """Settings that its class reads besides those that its config class lists."""
    other_names: Mapping[str, str] = field(default_factory=dict)
    """Names of weights that its class computes with by others, as patterns, and what stands for them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """What a family's folders have in place of BERT's names, and what it computes otherwise."""

    model_type: str
    title: str
    class_prefix: str
    """Prefix of its classes in transformers, in place of `Bert`."""
    names: Names = ()
    """Beginnings of the names of weights."""
    sequence_head: Names = ()
    """The same for the head of a classifier of texts, whose dense layer stands for BERT's pooler."""
    layer_names: Names = ()
    """Parts of the names of a layer's weights; all are replaced."""
    config_keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of config.json by those of BERT's, where they differ."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What a missing key of config.json means, by BERT's keys, where it differs."""
    positions_follow_padding: bool = False
    """Whether position 0 has the row of the position embeddings that follows the one with the number of `pad_token_id`;
    the rows before it are not used."""
    padding_of_positions: int | None = None
    """The number in place of `pad_token_id` in this, where the code of the family names it."""
    has_pooler: bool = True
    """Whether the bare encoder has a pooler."""
    drops_before_pooler: bool = False
    """Whether the head of a classifier of texts drops its input, too."""
    pooler_activation: Literal["tanh", "relu"] = "tanh"
    mlm_head_is_gelu: bool = False
    """Whether the masked language model head has gelu, whatever the layers have."""
    drops_before_answers: bool = False
    """Whether the head of question answering drops its input."""
    own_class: str | None = None
    """Class of transformers that is not BERT's of the same name."""
    wrapping: Wrapping | None = None
    """None for an adopted family."""

    def can(self, ability: Ability) -> bool:
        """Return whether an encoder of this family can be pretrained, planned, looked into or exported so."""
        return self.wrapping is None

    def num_unused_positions(self, pad_token_id: int) -> int:
        """Return how many rows of the position embeddings precede that of position 0."""
        padding = pad_token_id if self.padding_of_positions is None else self.padding_of_positions
        return padding + 1 if self.positions_follow_padding else 0

    def to_bert(self, name: str, *, is_classifier: bool) -> str | None:
        """Return BERT's name for a weight of this family; None for one that the head of the checkpoint does not read.

        Args:
            is_classifier: Whether the folder's model is a classifier of texts.

        >>> FAMILIES["roberta"].to_bert("lm_head.dense.bias", is_classifier=False)
        'cls.predictions.transform.dense.bias'
        """
        if not self.names:
            return name
        if name.startswith(("embeddings.", "encoder.", "transformer.", "pooler.")):
            name = f"{self.prefix}{name}"
        if is_classifier and name.startswith(f"{self.prefix}pooler."):
            return None
        pairs = (*self.sequence_head, *self.names) if is_classifier else self.names
        name = next((ours + name[len(theirs) :] for ours, theirs in pairs if name.startswith(theirs)), name)
        for ours, theirs in reversed(self.layer_names):
            name = name.replace(theirs, ours)
        return name

    def from_bert(self, name: str, *, is_classifier: bool) -> str:
        """Return this family's name for a weight with BERT's; the reverse of `to_bert`."""
        for ours, theirs in self.layer_names:
            name = name.replace(ours, theirs)
        pairs = (*self.sequence_head, *self.names) if is_classifier else self.names
        return next((theirs + name[len(ours) :] for ours, theirs in pairs if name.startswith(ours)), name)

    @property
    def prefix(self) -> str:
        """Prefix of the encoder's names in a model with a head."""
        return dict(self.names).get("bert.", "bert.")

    def config_to_bert(self, mapping: Mapping[str, Any]) -> dict[str, Any]:
        """Return a config.json of this family with BERT's keys and class names, and the positions that are used."""
        theirs = {theirs: ours for ours, theirs in self.config_keys.items()}
        renamed = {theirs.get(key, key): value for key, value in mapping.items()}
        found = {**renamed, **{key: value for key, value in self.defaults.items() if renamed.get(key) is None}}
        if names := mapping.get("architectures"):
            found["architectures"] = [
                name if name == self.own_class else "Bert" + name.removeprefix(self.class_prefix) for name in names
            ]
        if (positions := found.get("max_position_embeddings")) is not None:
            found["max_position_embeddings"] = positions - self.num_unused_positions(found.get("pad_token_id") or 0)
        return found

    def config_from_bert(self, mapping: Mapping[str, Any]) -> dict[str, Any]:
        """Return a config.json with this family's keys and class names; the reverse of `config_to_bert`."""
        ours = {self.config_keys.get(key, key): value for key, value in mapping.items()}
        ours["model_type"] = self.model_type
        ours["architectures"] = [self.class_prefix + name.removeprefix("Bert") for name in mapping["architectures"]]
        ours["max_position_embeddings"] += self.num_unused_positions(mapping["pad_token_id"])
        return ours


_DENSE_HEAD = (("bert.pooler.dense.", "classifier.dense."), ("classifier.", "classifier.out_proj."))


def _roberta(model_type: str, title: str, class_prefix: str) -> Family:
    return Family(
        model_type=model_type,
        title=title,
        class_prefix=class_prefix,
        names=(
            ("bert.", "roberta."),
            ("cls.predictions.transform.dense.", "lm_head.dense."),
            ("cls.predictions.transform.LayerNorm.", "lm_head.layer_norm."),
            ("cls.predictions.", "lm_head."),
        ),
        sequence_head=_DENSE_HEAD,
        defaults={"max_position_embeddings": 512, "pad_token_id": 1},
        positions_follow_padding=True,
        drops_before_pooler=True,
        mlm_head_is_gelu=True,
    )


_DISTILBERT = Family(
    model_type="distilbert",
    title="DistilBERT",
    class_prefix="DistilBert",
    names=(
        ("bert.encoder.", "distilbert.transformer."),
        ("bert.", "distilbert."),
        ("cls.predictions.transform.dense.", "vocab_transform."),
        ("cls.predictions.transform.LayerNorm.", "vocab_layer_norm."),
        ("cls.predictions.decoder.weight", "vocab_projector.weight"),
        ("cls.predictions.bias", "vocab_projector.bias"),
    ),
    sequence_head=(("bert.pooler.dense.", "pre_classifier."),),
    layer_names=(
        (".attention.self.query.", ".attention.q_lin."),
        (".attention.self.key.", ".attention.k_lin."),
        (".attention.self.value.", ".attention.v_lin."),
        (".attention.output.dense.", ".attention.out_lin."),
        (".attention.output.LayerNorm.", ".sa_layer_norm."),
        (".intermediate.dense.", ".ffn.lin1."),
        (".output.dense.", ".ffn.lin2."),
        (".output.LayerNorm.", ".output_layer_norm."),
    ),
    config_keys={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "classifier_dropout": "seq_classif_dropout",
    },
    defaults={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
    has_pooler=False,
    pooler_activation="relu",
    drops_before_answers=True,
)
_WRAPPED = (
    Family(
        model_type="electra",
        title="ELECTRA",
        class_prefix="Electra",
        names=(
            ("bert.", "electra."),
            ("cls.predictions.transform.", "generator_predictions."),
            ("cls.predictions.", "generator_lm_head."),
        ),
        sequence_head=_DENSE_HEAD,
        defaults={"hidden_size": 256, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 1024},
        own_class="ElectraForPreTraining",
        wrapping=Wrapping(),
    ),
    Family(
        model_type="albert",
        title="ALBERT",
        class_prefix="Albert",
        names=(
            ("bert.", "albert."),
            ("cls.predictions.", "predictions."),
            ("cls.seq_relationship.", "sop_classifier.classifier."),
        ),
        defaults={"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        wrapping=Wrapping(layers="encoder.albert_layer_groups"),
    ),
    Family(
        model_type="mpnet",
        title="MPNet",
        class_prefix="MPNet",
        names=(("bert.", "mpnet."), ("cls.predictions.transform.", "lm_head."), ("cls.predictions.", "lm_head.")),
        sequence_head=_DENSE_HEAD,
        defaults={"type_vocab_size": 0, "pad_token_id": 1, "vocab_size": 30527, "max_position_embeddings": 512},
        positions_follow_padding=True,
        padding_of_positions=1,
        wrapping=Wrapping(),
    ),
    Family(
        model_type="deberta-v2",
        title="DeBERTa",
        class_prefix="DebertaV2",
        names=(("bert.", "deberta."), ("cls.predictions.transform.", "lm_predictions.lm_head.")),
        defaults={"type_vocab_size": 0, "layer_norm_eps": 1e-7},
        wrapping=Wrapping(
            other_settings=("position_buckets", "norm_rel_ebd", "share_att_key", "conv_kernel_size", "conv_act"),
            # The head of `legacy: false`, and of what was published: the same computation.
            other_names={
                r"^lm_predictions\.lm_head\.(dense|LayerNorm)": r"cls.predictions.transform.\1",
                r"^lm_predictions\.lm_head\.bias": "cls.predictions.bias",
            },
        ),
    ),
    Family(
        model_type="modernbert",
        title="ModernBERT",
        class_prefix="ModernBert",
        names=(("bert.", "model."), ("cls.predictions.", "decoder.")),
        config_keys={
            "hidden_act": "hidden_activation",
            "hidden_dropout_prob": "mlp_dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "layer_norm_eps": "norm_eps",
        },
        defaults={"type_vocab_size": 0, "max_position_embeddings": 8192, "pad_token_id": 50283},
        wrapping=Wrapping(
            layers="layers", above_layers=("final_norm",), other_settings=("global_attn_every_n_layers",)
        ),
    ),
)

FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        Family(model_type="bert", title="BERT", class_prefix="Bert"),
        _roberta("roberta", "RoBERTa", "Roberta"),
        _roberta("xlm-roberta", "XLM-R", "XLMRoberta"),
        _roberta("camembert", "CamemBERT", "Camembert"),
        _DISTILBERT,
        *_WRAPPED,
    )
}
"""The families by `model_type`."""


def family_in(mapping: Mapping[str, Any], where: str) -> Family:
    """Return the family of a config.json.

    Raises:
        ArtifactError: bertline does not read it.
    """
    model_type = mapping.get("model_type") or "bert"
    if model_type not in FAMILIES:
        own_code = " and its code comes with it (auto_map), which is never run" if "auto_map" in mapping else ""
        raise ArtifactError(
            f"{where}: model_type is {model_type!r}{own_code}; bertline reads {', '.join(FAMILIES)}. "
            "Choose an encoder of these."
        )
    return FAMILIES[model_type]
