"""Loaded model for inference: predict its task, fill blanks, embed, search, inspect attention and hidden states.

Shapes: n texts, H hidden size, S positions, B batch size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertline.encoders.loading import Encoder
from bertline.encoding.sequences import encode_texts, scoring_batches, unit
from bertline.foundation.errors import ArtifactError, DataError
from bertline.kinds.classification import Prediction
from bertline.kinds.inputs import require_text, require_texts, row_ids
from bertline.kinds.predictor import LinearTaskPredictor, TaskPredictor
from bertline.kinds.retrieval import Hit, Retrieval, VectorIndex, best_hits
from bertline.modeling.config import Pooling
from bertline.modeling.families import FAMILIES
from bertline.modeling.heads import pooled
from bertline.modeling.text_vectors import TextVectorModules
from bertline.tokenization.tokenizer import Tokenizer
from bertline.tokenization.vocabulary import MASK

__all__ = [
    "Attentions", "Guess", "Hit", "Inside", "LoadedLinearModel", "LoadedModel", "Prediction", "TokenVectors",
    "WordVectors",
]  # fmt: skip

# Labels that the printed form of a model lists.
_MOST_LABELS = 6
BLANK = re.compile(r"_{2,}|\[MASK\]")
"""A blank in a text."""


class Guess(NamedTuple):
    """Predicted token for a blank."""

    token: str
    probability: float


def filled(model: LoadedModel, sentence: str, *, num_guesses: int) -> str:
    """Return the guesses for each blank (`___` or `[MASK]`) of a sentence as text, one line per blank.

    Raises:
        DataError: The sentence has no blank.
    """
    if not BLANK.search(sentence):
        raise DataError(f"no blank in {sentence!r}; write ___ where a word is missing")
    guesses = model.fill_mask(BLANK.sub("[MASK]", sentence), top_k=num_guesses)
    return "\n".join("  " + "   ".join(f"{token} {prob:.0%}" for token, prob in blank) for blank in guesses)


Role = Literal["query", "document"]


class Attentions(NamedTuple):
    """Attention probabilities of all layers and heads for one sequence."""

    tokens: tuple[str, ...]
    probabilities: NDArray[np.float32]
    """Attention [layers, heads, S, S]; rows are query positions, columns are key positions."""


class Inside(NamedTuple):
    """What an encoder computes for one sequence: L layers of N heads with D channels, S tokens, hidden size H."""

    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    segments: tuple[int, ...]
    """Segment of each token, 0 or 1; [CLS] and the [SEP] behind a segment belong to it."""
    hidden_states: NDArray[np.float32]
    """[L + 1, S, H]: the embeddings, then the output of each layer."""
    probabilities: NDArray[np.float32]
    """Attention [L, N, S, S]; rows are query positions, which sum to one over the keys."""
    query: NDArray[np.float32] | None
    """[L, N, S, D]; None, like the next three, for families that are wrapped (ALBERT, ELECTRA, ...)."""
    key: NDArray[np.float32] | None
    value: NDArray[np.float32] | None
    """[L, N, S, D]; a head's output is `probabilities @ value`."""
    scores: NDArray[np.float32] | None
    """[L, N, S, S]: query . key / sqrt(D), before the softmax."""


class WordVectors(NamedTuple):
    """Contextual vectors of a word: the mean of those of its tokens, at each place where it stands in a text."""

    tokens: tuple[str, ...]
    """Tokens of its first place."""
    starts: tuple[int, ...]
    """Character offset of each place."""
    vectors: NDArray[np.float32]
    """[L + 1, places, H]: the embeddings, then the output of each layer."""


class TokenVectors(NamedTuple):
    """Contextual vector of each token of a text."""

    tokens: tuple[str, ...]
    vectors: NDArray[np.float32]
    """Hidden states [S, H]."""


class LoadedModel:
    """A model with its tokenizer, for inference in fp32, without dropout.

    `[MASK]` in a text is the family's mask token (`<mask>`, for example, which may be written too) for the methods that
    look into the encoder and for those of its pretraining heads; `predict`, `search` and `embed` read it as plain text.

    Args:
        model: Model on its device: an encoder, or a model whose attribute `bert` is the encoder.
        tokenizer: Tokenizer of the model.
        max_length: Maximum number of tokens of a sequence; longer texts are truncated.
        task: Task that the model was fine-tuned for; None for an encoder.
        name: Name of the model in messages.
        modules: What makes vectors of texts besides the encoder; None without `modules.json`.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        *,
        max_length: int,
        task: TaskPredictor | None,
        name: str,
        modules: TextVectorModules | None = None,
    ) -> None:
        self.model: Any = model.eval()
        self.encoder: Encoder = getattr(model, "bert", model)
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.task = task
        self.name = name
        self.modules = modules
        self.device: torch.device = next(model.parameters()).device
        self.result: dict[str, Any] = {}
        """Scores of `bertline.fit`, if it made the model, and the paths of `export` and `report`."""

    def __repr__(self) -> str:
        config = self.encoder.config
        number = sum(parameter.numel() for parameter in self.model.parameters())
        return (
            f"<{FAMILIES[config.family].title}, {config.num_hidden_layers} layers, hidden size {config.hidden_size}, "
            f"{number:,} parameters{self._task_in_words()}, reads up to {self.max_length} tokens>"
        )

    def _task_in_words(self) -> str:
        names = ", ".join(self.labels[:_MOST_LABELS]) + (", ..." if len(self.labels) > _MOST_LABELS else "")
        return "" if self.kind is None else f", {self.kind}{f' ({names})' if names else ''}"

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the task, in the order of their ids; empty without a task."""
        return () if self.task is None else tuple(self.task.kind.labels)

    @property
    def kind(self) -> str | None:
        """Kind of the task that the model was fine-tuned for (`classification`, ...); None for an encoder."""
        return None if self.task is None else str(self.task.kind.config.kind)

    def predict(self, *inputs: Any, **named: Any) -> list[Any]:
        """Predict the task's output for each input, with the same computation as in evaluation.

        | kind | inputs | output per input |
        |---|---|---|
        | classification | texts, text_pairs or none | `Prediction`; if multi-label, `LabelsPrediction` |
        | regression | texts, text_pairs or none | a float |
        | token_classification | texts or lists of words | a list of `Entity` |
        | question_answering | questions, contexts | `Answer` |
        | reranking | queries, candidates (lists) | a list of `Ranked`, best first |
        | retrieval | queries, documents, top_k | a list of `Hit`, best first |
        | summarisation | texts or lists of sentences | `Summary` |
        | tagging | texts or lists of words | a list of `TaggedWord` |
        | sentence_labelling | texts or lists of sentences | a list of `LabelledSentence` |

        Each input may be a list, an array or an iterator, such as an open file. With `coverage=0.95`, classification
        with one label a row gives a `LabelsPrediction` with the labels that a text may have: the right one is among
        them for 95 % of texts like those of training, on average.

        Raises:
            DataError: An input has the wrong type, or is single texts for a model of pairs, or the reverse.
            ArtifactError: The model has no task, or no label sets for `coverage`.
        """
        if self.task is None:
            raise self._cannot("classify or answer", "task", "artifacts/export/TASK")
        return self.task.predict(*inputs, **named)

    def search(self, queries: Sequence[str], documents: Sequence[str], top_k: int = 10) -> list[list[Hit]]:
        """Find the `top_k` nearest documents of each query, best first.

        A retrieval model encodes queries and documents as in training. Any other model compares pooled text vectors
        (see `embed`) by cosine.

        Raises:
            DataError: There are no documents.
        """
        if self.task is not None and isinstance(self.task.kind, Retrieval):
            return self.task.predict(queries, documents, top_k)
        read = require_texts(documents, "documents")
        if not read:
            raise DataError("documents is empty; give at least one to search in.")
        index = VectorIndex(unit(self.embed(read, role="document")))
        return best_hits(index, unit(self.embed(queries, role="query")), row_ids(len(index)), top_k)

    @torch.no_grad()
    def fill_mask(self, text: str, top_k: int = 5) -> list[list[Guess]]:
        """Return the `top_k` most likely tokens for each `[MASK]` of a text, most likely first.

        Each blank is predicted independently, while the others stay masked. Special tokens are never returned, but the
        probabilities are normalized over the whole vocabulary.

        Raises:
            DataError: The text has no `[MASK]`, or is longer than the model's maximum length.
            ArtifactError: The model has no masked language model head.
        """
        if not hasattr(self.model, "forward_everywhere"):
            raise self._cannot(
                "fill blanks",
                "masked language model head",
                "artifacts/pretrain, an encoder's export or (ELECTRA) a generator",
            )
        tokenizer = self.tokenizer
        ids = self._sequence(text, None)[0]
        blanks = [position for position, token in enumerate(ids) if token == tokenizer.mask_id]
        if not blanks:
            raise DataError(f"no {MASK} in {text!r}; write {MASK} where a word is missing.")
        input_ids = torch.tensor([ids], device=self.device)
        places = torch.tensor([blanks], device=self.device)
        output = self.model(input_ids, torch.zeros_like(input_ids), None, places)
        # Embeddings may be padded: ids behind the tokenizer's stand for nothing.
        probabilities = output.mlm_logits[0, :, : tokenizer.vocab_size].softmax(-1)  # [blanks, V]
        special = torch.tensor(sorted(tokenizer.special_ids), device=self.device)
        best = probabilities.index_fill(1, special, -1.0).topk(min(top_k, tokenizer.vocab_size - len(special)))
        return [
            [Guess(*guess) for guess in zip(tokenizer.readable_tokens(tokens), values, strict=True)]
            for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def embed(
        self, texts: Sequence[str], pooling: Pooling | None = None, batch_size: int = 32, *, role: Role | None = None
    ) -> NDArray[np.float32]:
        """Compute one vector per text, [n, H].

        Args:
            texts: Texts; long ones are truncated to the model's maximum length.
            pooling: `mean` averages the last layer over all non-padding positions (including [CLS] and [SEP]), `cls`
                takes the first position. None does all that the folder's `modules.json` (sentence-transformers) says:
                pooling, layers, length 1, maximum length and prompts; without it, as the model's task does, or `mean`.
            batch_size: Number of texts per batch.
            role: For a retrieval model or one with prompts, whether the texts are queries or documents, which have
                different prefixes and maximum lengths.
        """
        return self.text_vectors(texts, pooling, batch_size=batch_size, role=role)[0]

    @torch.no_grad()
    def text_vectors(
        self, texts: Sequence[str], pooling: Pooling | None = None, *, batch_size: int = 32, role: Role | None = None
    ) -> tuple[NDArray[np.float32], int]:
        """Like `embed`, but also return the number of truncated texts."""
        config: Any = None if self.task is None else self.task.kind.config
        how: Any = pooling or getattr(config, "pooling", "mean")
        if how not in get_args(Pooling):
            raise DataError(f"pooling is {how!r}; expected mean or cls.")
        read, max_length = require_texts(texts, "texts"), self.max_length
        modules, size = self.modules if pooling is None else None, self.encoder.config.hidden_size
        if modules is not None:
            read, max_length, size = modules.texts(read, role), modules.max_length or max_length, modules.size
        elif role is not None and self.task is not None and isinstance(self.task.kind, Retrieval):
            prefix = config.query_prefix if role == "query" else config.document_prefix
            read = [prefix + text for text in read]
            max_length = config.query_max_length if role == "query" else max_length
        sequences = encode_texts(read, None, self.tokenizer, max_length=max_length)
        vectors = np.zeros((len(sequences), size), dtype=np.float32)
        for indices, batch in scoring_batches(sequences, batch_size=batch_size):
            inputs = {name: values.to(self.device) for name, values in batch.items()}
            states, mask = self.encoder(**inputs).hidden_states, inputs["attention_mask"]
            found = pooled(states, mask, how) if modules is None else modules.vectors(states, mask)
            vectors[indices] = found.cpu().numpy()
        return vectors, int(sequences.cut.sum())

    def attentions(self, text: str, text_pair: str | None = None) -> Attentions:
        """Return the S tokens of a text (or pair) and the attention probabilities [L layers, N heads, S, S]."""
        inside = self.inside(text, text_pair)
        return Attentions(inside.tokens, inside.probabilities)

    @torch.no_grad()
    def inside(self, text: str, text_pair: str | None = None) -> Inside:
        """Return tokens, hidden states and everything that attention computes for a text or pair.

        For S tokens, L layers of N heads of D channels, and hidden size H: hidden states [L + 1, S, H], probabilities
        and scores [L, N, S, S]; query, key and value [L, N, S, D]. Only `[MASK]` is a blank here; `___` is text.

        Raises:
            DataError: The text is longer than the model reads.
        """
        ids, types, segments = self._sequence(text, text_pair)
        detail = self.encoder.forward_in_detail(*torch.tensor([[ids], [types]], device=self.device))
        by_name = dict(zip(detail.layers[0]._fields, zip(*detail.layers, strict=True), strict=True))
        attention: dict[str, Any] = {
            name: None if layers[0] is None else torch.cat(layers).cpu().numpy() for name, layers in by_name.items()
        }
        states = torch.cat(detail.hidden_states).cpu().numpy()
        return Inside(tuple(self.tokenizer.tokens(ids)), tuple(ids), tuple(segments), states, **attention)

    def word_vectors(self, text: str, word: str) -> WordVectors:
        """Return the vectors of a word in a text, [L layers + 1, places, hidden size H], where it is a whole word.

        Example: `model.word_vectors("The river bank was steep.", "bank").vectors[-1, 0]` after the last layer.

        Raises:
            DataError: The word is not in the text, has no token of its own there, or the text is too long.
        """
        whole_word = rf"(?<!\w){re.escape(require_text(word, 'word'))}(?!\w)"
        starts = [match.start() for match in re.finditer(whole_word, require_text(text, "text"))] if word else []
        if not starts:
            raise DataError(f"the word {word!r} is not in {text!r}, letter by letter and as a whole word.")
        inside, num_before = self.inside(text), len(self.tokenizer.single.before)
        [(_, offsets)] = self.tokenizer.encode_with_places([self._with_mask_token(text)], with_mask=True)
        longer = len(self.tokenizer.mask_token) - len(MASK)  # a mask token moves what is behind it
        places = []
        for start in starts:
            begin, end = (at + longer * text.count(MASK, 0, at) for at in (start, start + len(word)))
            places.append([at for at, (left, right) in enumerate(offsets, num_before) if left < end and right > begin])
            if not places[-1]:
                raise DataError(f"{word!r} has no token of its own in {text!r}.")
        vectors = np.stack([inside.hidden_states[:, tokens].mean(1) for tokens in places], axis=1)
        return WordVectors(tuple(inside.tokens[at] for at in places[0]), tuple(starts), vectors)

    def similar_words(self, word: str, top_k: int = 10) -> list[tuple[str, float]]:
        """Return the tokens whose static vectors (input embeddings) are nearest to a word's by cosine, best first.

        The vector of a word of several tokens is their mean. Its own tokens and special ones are left out.

        Raises:
            DataError: The vocabulary has no token of the word, or `top_k` is less than 1.
        """
        tokenizer = self.tokenizer
        ids = tokenizer.encode_words([word])[0] if require_text(word, "word").strip() else []
        if not {*ids} - {tokenizer.unk_id}:
            raise DataError(f"{word!r} has no token in the vocabulary of {self.name}; give a word that it has.")
        if top_k < 1:
            raise DataError(f"top_k is {top_k}; give 1 or more.")
        table = unit(self.encoder.word_embeddings[: tokenizer.vocab_size].detach().cpu().numpy())
        similarity = table @ unit(table[ids].mean(0, keepdims=True))[0]
        left_out = tokenizer.special_ids.union(ids)
        similarity[list(left_out)] = -np.inf
        best = np.argsort(-similarity, kind="stable")[: min(top_k, tokenizer.vocab_size - len(left_out))]
        names = tokenizer.readable_tokens(best.tolist())
        return [(name, float(similarity[index])) for name, index in zip(names, best, strict=True)]

    @torch.no_grad()
    def next_sentence(self, first: str, second: str) -> float:
        """Return the probability that the second text follows the first one, by the next sentence head.

        ALBERT's head compares with the swapped order instead of a random text.

        Raises:
            DataError: A text is empty, or the texts are together longer than the model reads.
            ArtifactError: The model has no such head, as those after RoBERTa.
        """
        if not require_text(first, "first").strip() or not require_text(second, "second").strip():
            raise DataError("a text is empty; next_sentence compares two texts with words.")
        ids, types, _ = self._sequence(first, second)
        sequence = torch.tensor([[ids], [types]], device=self.device)
        has_heads = hasattr(self.model, "forward_everywhere")
        output = self.model.forward_everywhere(*sequence).nsp_logits if has_heads else None
        if output is None:
            raise self._cannot("tell whether a text follows", "next sentence head", "artifacts/pretrain")
        return float(output[0].softmax(-1)[0])  # class 0 is the next segment

    def token_vectors(self, text: str, layer: int = -1) -> TokenVectors:
        """Return the vector of each token of a text after a layer: 0 is the embeddings, -1 the last layer."""
        inside = self.inside(text)
        return TokenVectors(inside.tokens, inside.hidden_states[layer].copy())  # lets go of the other layers

    def _sequence(self, text: str, text_pair: str | None) -> tuple[list[int], list[int], list[int]]:
        """Return ids, types and segments of tokens; a sequence that is too long is not truncated, which could lose a
        mask."""
        layout = self.tokenizer.single if text_pair is None else self.tokenizer.pair
        texts = require_text(text, "text"), "" if text_pair is None else require_text(text_pair, "text_pair")
        first, second = self.tokenizer.encode_literally([*map(self._with_mask_token, texts)], with_mask=True)
        ids = layout.sequence(first, second)
        if len(ids) > self.max_length:
            what, it = ("the text has", "it") if text_pair is None else ("text and pair together have", "them")
            raise DataError(f"{what} {len(ids)} tokens; the model reads at most {self.max_length}. Shorten {it}.")
        num_type_0 = layout.first_length(len(first), len(second))
        num_segment_0 = len(ids) if text_pair is None else len(ids) - len(second) - len(layout.after)
        types, segments = ([0] * size + [1] * (len(ids) - size) for size in (num_type_0, num_segment_0))
        return ids, types, segments

    def _with_mask_token(self, text: str) -> str:
        return text.replace(MASK, self.tokenizer.mask_token)

    def _cannot(self, what: str, head: str, where: str) -> ArtifactError:
        return ArtifactError(f"{self.name} cannot {what}: it has no {head}. Load {where} instead.")


class LoadedLinearModel(LoadedModel):
    """A linear model on n-grams or the like: it predicts as a fine-tuned encoder does, and there is no encoder in it.

    Args:
        task: Its task.
        title: What it is, such as `character n-grams, linear model`.
        folder: Folder that holds it.
        name: Name of the model in messages.
    """

    def __init__(self, task: LinearTaskPredictor, *, title: str, folder: Path, name: str) -> None:
        self.task, self.title, self.folder, self.name = task, title, folder, name
        self.device, self.result = torch.device("cpu"), {}

    def __repr__(self) -> str:
        return f"<{self.title}{self._task_in_words()}, without an encoder>"

    def __getattr__(self, name: str) -> Any:
        if name not in ("encoder", "max_length", "model", "modules", "tokenizer"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise ArtifactError(
            f"{self.name} has no encoder: it is a linear model ({self.title}), which only predicts. Load the encoder "
            "that was fine-tuned on the same rows, from the folder NAME-encoder beside it."
        )
