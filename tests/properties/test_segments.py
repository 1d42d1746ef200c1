"""Segments apart: nothing of a pair is lost, and nothing is added but special tokens."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.examples.packing import segments_apart
from bertline.tokenization.tokenizer import Layout

PAD, WIDTH, NUM_TARGETS = 0, 24, 4
LAYOUTS = [Layout((2,), (3,), (3,), 1), Layout((2,), (3, 3), (3,), 0)]  # BERT's, RoBERTa's


@st.composite
def pairs(draw):
    """A batch of masked pairs as `masked_batch` makes them, with the tokens of both segments."""
    layout = draw(st.sampled_from(LAYOUTS))
    segments = st.lists(st.integers(5, 99), min_size=1, max_size=10)
    texts = draw(st.lists(st.tuples(segments, segments), min_size=1, max_size=6))
    ids = np.full((len(texts), WIDTH), PAD)
    mask = np.zeros_like(ids)
    positions, labels = np.zeros((len(texts), NUM_TARGETS), np.int64), np.full((len(texts), NUM_TARGETS), -100)
    for row, (a, b) in enumerate(texts):
        tokens = layout.sequence(a, b)
        ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
        places = [place for place, token in enumerate(tokens) if token >= 5]
        chosen = sorted(draw(st.sets(st.sampled_from(places), min_size=1, max_size=NUM_TARGETS)))
        positions[row, : len(chosen)] = chosen
        labels[row, : len(chosen)] = ids[row, chosen]
    firsts = np.array([len(layout.before) + len(a) + len(layout.between) for a, _ in texts])
    batch = {"input_ids": ids, "attention_mask": mask, "masked_positions": positions, "masked_labels": labels}
    return batch, texts, firsts, layout


@settings(max_examples=100)
@given(made=pairs())
def test_each_segment_is_a_sequence_with_its_own_tokens_and_targets(made):
    batch, texts, firsts, layout = made
    apart = segments_apart(batch, firsts, layout, pad_id=PAD)
    assert {name: len(values) for name, values in apart.items()} == dict.fromkeys(apart, 2 * len(texts))
    assert not apart["token_type_ids"].any() and not apart["next_sentence_labels"].any()
    for row, segment in enumerate(segment for pair in texts for segment in pair):
        tokens = [*layout.before, *segment, *layout.after]
        assert apart["input_ids"][row].tolist() == tokens + [PAD] * (WIDTH - len(tokens))
        assert apart["attention_mask"][row].tolist() == [1] * len(tokens) + [0] * (WIDTH - len(tokens))
        used = apart["masked_labels"][row] != -100
        found = apart["input_ids"][row, apart["masked_positions"][row, used]]
        assert found.tolist() == apart["masked_labels"][row, used].tolist()
        assert not apart["masked_positions"][row, ~used].any()
    assert (apart["masked_labels"] != -100).sum() == (batch["masked_labels"] != -100).sum()
