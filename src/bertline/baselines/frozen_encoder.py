"""Vectors of texts and words from an encoder that is not trained: its outputs, and static vectors of its tokens."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from bertline.encoders.loading import load_encoder
from bertline.encoding.sequences import INPUT_NAMES, encode_texts, padded_sequences, scoring_batches
from bertline.encoding.word_windows import encode_words, outputs_of_words, token_ids_of_words, word_means
from bertline.linear.model import one_thread
from bertline.modeling.checkpoint import Checkpoint
from bertline.tasks.stored_rows import TaggedRows
from bertline.training.devices import Machine, evaluating

Vectors = NDArray[np.float32]
TextVectors = Callable[[Sequence[str]], Vectors]
_MOST_COMPONENTS, _MOST_FITTED = 256, 10_000
_FEWER_FITTED = 2_500
"""Number of tokens of a larger vocabulary that components are fitted to: ten times the components are enough."""
_MOST_KEPT = 100_000  # maximum number of texts to cache; the vectors of a large collection would fill the memory
_SMOOTHING = 1e-3
"""Arora et al. 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", section 3: a = 1e-3."""


class FrozenEncoder:
    """Vectors of texts and words from the weights of a folder.

    The vectors of texts are cached (except for very many texts at once), and so are the static vectors of all tokens.
    A sweep passes fp32 in `machine`, whatever the precision of the run.
    """

    def __init__(self, folder: Path, machine: Machine, *, max_length: int) -> None:
        self._checkpoint = Checkpoint.open(folder)
        self.tokenizer = self._checkpoint.tokenizer
        self.pooling = self._checkpoint.pooling
        self._machine, self._max_length = machine, max_length
        self._read: dict[str, Vectors] = {}

    def choices(self) -> dict[str, TextVectors]:
        """Return, for each pooling, a function from N texts to their vectors [N, H]."""
        return {"mean": lambda texts: self._pooled(texts)[:, 0], "cls": lambda texts: self._pooled(texts)[:, 1]}

    def static_choices(self, train: Sequence[str]) -> dict[str, TextVectors]:
        """Return, for each weighting, a function from N texts to [N, D], the mean of their tokens' static vectors.

        A token's static vector is the encoder's mean output for `[CLS] token [SEP]`, projected on the principal
        components over all tokens, of a large vocabulary over every n-th (as model2vec distils encoders for CPUs).
        `frequency` weights a token by a / (a + its share in train), `none` weights all tokens equally.
        """
        counts = np.ones(self._model.vocab_size)  # add-one smoothing: no token has probability 0
        for ids in self.tokenizer.encode_literally(list(train)):
            np.add.at(counts, ids, 1)
        weights = {"frequency": _SMOOTHING / (_SMOOTHING + counts / counts.sum()), "none": np.ones(len(counts))}
        return {name: partial(self._static_mean, weights=weight) for name, weight in weights.items()}

    def of_words(self, rows: TaggedRows, kind: Any) -> Vectors:
        """Return vectors [T, H] of the T words of some rows: the mean over a word's tokens, in the window from which
        the encoder would predict its tag."""
        encoded = encode_words(
            rows, kind.labels, self.tokenizer, max_length=self._max_length, overlap=kind.config.window_overlap
        )
        return outputs_of_words(
            self._model,
            encoded,
            self._machine,
            self._model.config.hidden_size,
            lambda outputs, batch: word_means(outputs.hidden_states, batch),
        )

    def static_of_words(self, rows: TaggedRows) -> Vectors:
        """Return vectors [T, D] of the T words of some rows: the mean of the static vectors of a word's tokens."""
        token_ids = token_ids_of_words(rows.words, self.tokenizer)
        of_tokens = self._static(token_ids.values())
        of_words = {word: of_tokens[ids].mean(axis=0) for word, ids in token_ids.items()}
        found = [of_words[word] for words in rows.words for word in words]
        return np.array(found, dtype=np.float32).reshape(-1, of_tokens.shape[1])

    def _static_mean(self, texts: Sequence[str], weights: NDArray[np.float64]) -> Vectors:
        of_texts = self.tokenizer.encode_literally(list(texts))
        of_tokens = self._static(of_texts)
        found = np.zeros((len(texts), of_tokens.shape[1]), dtype=np.float32)
        for row, ids in enumerate(of_texts):
            if ids:
                found[row] = np.average(of_tokens[ids], axis=0, weights=weights[ids])
        return found

    @cached_property
    def _model(self) -> Any:
        return load_encoder(self._checkpoint).to(self._machine.device)

    def _static(self, wanted: Iterable[Sequence[int]]) -> Vectors:
        """Return the table of static vectors [V, D], in which those of some tokens are computed."""
        components, table, known = self._static_table
        if len(new := np.array(sorted({token for ids in wanted for token in ids if not known[token]}), dtype=np.int64)):
            with one_thread():
                table[new] = components.transform(self._alone(new))
            known[new] = True
        return table

    @cached_property
    def _static_table(self) -> tuple[PCA, Vectors, NDArray[np.bool_]]:
        """Principal components, static vectors of the vocabulary [V, D], and which of them are computed [V]."""
        size = self._model.vocab_size
        fitted = np.arange(size)[:: 1 if size <= _MOST_FITTED else math.ceil(size / _FEWER_FITTED)]
        vectors = self._alone(fitted)
        components = PCA(min(_MOST_COMPONENTS, *vectors.shape), svd_solver="full")
        with one_thread():
            projected = components.fit_transform(vectors).astype(np.float32)
        table, known = np.zeros((size, projected.shape[1]), dtype=np.float32), np.zeros(size, dtype=bool)
        table[fitted], known[fitted] = projected, True
        return components, table, known

    def _alone(self, ids: NDArray[np.int64]) -> Vectors:
        """Return the encoder's mean output [N, H] for each token by itself."""
        tokens = [self.tokenizer.single.sequence([token]) for token in ids.tolist()]
        return self._run(padded_sequences(tokens, [len(tokens[0])] * len(ids), pad_id=self.tokenizer.pad_id))[:, 0]

    def _pooled(self, texts: Sequence[str]) -> Vectors:
        """Return [N, 2, H]: the mean over a text's tokens, and the vector of [CLS]."""
        if len(texts) > _MOST_KEPT:
            return self._encoded(texts)
        new = [text for text in dict.fromkeys(texts) if text not in self._read]
        if new:
            self._read.update(zip(new, self._encoded(new), strict=True))
        return np.stack([self._read[text] for text in texts])

    def _encoded(self, texts: Sequence[str]) -> Vectors:
        return self._run(encode_texts(texts, None, self.tokenizer, max_length=self._max_length))

    def _run(self, sequences: Any) -> Vectors:
        """Return [S, 2, H]: the mean over a sequence's tokens, and the vector of [CLS]."""
        found: Vectors = np.zeros((len(sequences), 2, self._model.config.hidden_size), dtype=np.float32)
        with evaluating(self._model, self._machine) as forward:
            for indices, batch in scoring_batches(sequences):
                inputs = {name: batch[name].to(self._machine.device) for name in INPUT_NAMES}
                states = forward(*inputs.values()).hidden_states.float()
                seen = inputs["attention_mask"][..., None].float()
                found[indices, 0] = ((states * seen).sum(1) / seen.sum(1)).cpu().numpy()
                found[indices, 1] = states[:, 0].cpu().numpy()
        return found
