"""Vectors of texts and words from an encoder without further training, in context or from static token vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from bertline.encoders.loading import load_encoder
from bertline.finetuning.encoding import assemble, encode_texts, scoring_batches
from bertline.finetuning.word_windows import encode_words, token_ids_of_words, word_means
from bertline.kinds.tagging import Tagging
from bertline.sweep.baselines.linear import one_thread
from bertline.tasks.stored_rows import TaggedRows
from bertline.tokenization.tokenizer import Tokenizer
from bertline.training.devices import Machine, evaluating

Vectors = NDArray[np.float32]
TextVectors = Callable[[Sequence[str]], Vectors]
_MOST_COMPONENTS = 256
_MOST_KEPT = 100_000  # maximum number of texts to cache; the vectors of a large collection would fill the memory
_SMOOTHING = 1e-3
"""Arora et al. 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", section 3: a = 1e-3."""
_INPUTS = ("input_ids", "token_type_ids", "attention_mask")


class FrozenEncoder:
    """Vectors of texts and words from the weights of a folder.

    The vectors of texts are cached (except for very many texts at once), and so are the static vectors of all tokens.
    A sweep passes fp32 in `machine`, whatever the precision of the run.
    """

    def __init__(self, folder: Path, machine: Machine, *, max_length: int) -> None:
        self.tokenizer = Tokenizer.load(folder)
        self._folder, self._machine, self._max_length = folder, machine, max_length
        self._read: dict[str, Vectors] = {}

    def choices(self, train: Sequence[str]) -> dict[str, TextVectors]:
        """Return, for each pooling, a function from N texts to their vectors [N, H]; `train` is not used."""
        return {"mean": lambda texts: self._pooled(texts)[:, 0], "cls": lambda texts: self._pooled(texts)[:, 1]}

    def static_choices(self, train: Sequence[str]) -> dict[str, TextVectors]:
        """Return, for each weighting, a function from N texts to [N, D], the mean of their tokens' static vectors.

        A token's static vector is the encoder's mean output for `[CLS] token [SEP]`, projected on the principal
        components over all tokens (as model2vec distils encoders for use on CPUs). `frequency` weights a token by
        a / (a + its share in train), `none` weights all tokens equally.
        """
        counts = np.ones(len(self._static))  # add-one smoothing: no token has probability 0
        for ids in self.tokenizer.encode_literally(list(train)):
            np.add.at(counts, ids, 1)
        weights = {"frequency": _SMOOTHING / (_SMOOTHING + counts / counts.sum()), "none": np.ones(len(counts))}
        return {name: partial(self._static_mean, weights=weight) for name, weight in weights.items()}

    def of_words(self, rows: TaggedRows, kind: Tagging) -> Vectors:
        """Return vectors [T, H] of the T words of some rows: the mean over a word's tokens, in the window from which
        the encoder would predict its tag."""
        encoded = encode_words(
            rows, kind.labels, self.tokenizer, max_length=self._max_length, overlap=kind.config.window_overlap
        )
        found: Vectors = np.zeros((int(encoded.row_starts[-1]), self._model.config.hidden_size), dtype=np.float32)
        with evaluating(self._model, self._machine) as forward:
            for indices, _ in scoring_batches(encoded.sequences):
                batch = encoded.batch(indices)
                states = forward(*(batch[name].to(self._machine.device) for name in _INPUTS)).hidden_states
                vectors = word_means(states, batch).cpu().numpy()
                taken = encoded.taken[indices, : vectors.shape[1]]
                found[encoded.words[indices, : vectors.shape[1]][taken]] = vectors[taken]
        return found

    def static_of_words(self, rows: TaggedRows) -> Vectors:
        """Return vectors [T, D] of the T words of some rows: the mean of the static vectors of a word's tokens."""
        size = self._static.shape[1]
        token_ids = token_ids_of_words(rows.words, self.tokenizer)
        of_words = {word: self._static[ids].mean(axis=0) for word, ids in token_ids.items()}
        return np.array([of_words[word] for words in rows.words for word in words], dtype=np.float32).reshape(-1, size)

    def _static_mean(self, texts: Sequence[str], weights: NDArray[np.float64]) -> Vectors:
        found = np.zeros((len(texts), self._static.shape[1]), dtype=np.float32)
        for row, ids in enumerate(self.tokenizer.encode_literally(list(texts))):
            if ids:
                found[row] = np.average(self._static[ids], axis=0, weights=weights[ids])
        return found

    @cached_property
    def _model(self) -> Any:
        return load_encoder(self._folder).to(self._machine.device)

    @cached_property
    def _static(self) -> Vectors:
        """Static vectors of the vocabulary, [V, D]."""
        size = self._model.vocab_size
        tokens = [self.tokenizer.single.sequence([token]) for token in range(size)]
        vectors = self._run(assemble(tokens, [len(tokens[0])] * size, pad_id=self.tokenizer.pad_id))[:, 0]
        with one_thread():
            components = PCA(min(_MOST_COMPONENTS, *vectors.shape), svd_solver="full").fit_transform(vectors)
        return components.astype(np.float32)

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
                inputs = {name: batch[name].to(self._machine.device) for name in _INPUTS}
                states = forward(*inputs.values()).hidden_states.float()
                seen = inputs["attention_mask"][..., None].float()
                found[indices, 0] = ((states * seen).sum(1) / seen.sum(1)).cpu().numpy()
                found[indices, 1] = states[:, 0].cpu().numpy()
        return found
