"""What context does to a word, measured: senses, WiC, blanks, analogies, next sentences, each next to what is simple.

A text that is too long is cut to the window around its place (`num_cut`). Layer 0 is the output of the embeddings,
which knows the position of a token but no other token. Where there are intervals, they are of 95 %; `senses` has none.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bertline.corpus.files import paragraphs_of
from bertline.corpus.lines import numbered_lines
from bertline.corpus.sentences.learned import split_sentences
from bertline.corpus.storage import read_documents
from bertline.encoding.sequences import Sequences, encode_texts, padded_sequences, scoring_batches, unit
from bertline.foundation.errors import DataError
from bertline.foundation.progress import warn
from bertline.foundation.seeds import generator
from bertline.inference.model import LoadedModel
from bertline.tokenization.vocabulary import MASK

_Array = NDArray[Any]
_Documents = Sequence[Sequence[str]]
_Span = tuple[int, int]
WicRow = tuple[str, tuple[str, str], tuple[_Span, _Span], bool]
"""A word, two sentences, where it stands in each (`sentence[start:end]`), and whether its sense is the same."""
_SIMPLE = ("most frequent answer", "static", "other words")
# forward_in_detail keeps 1,152 * S * (S + 128) bytes of a row of S tokens in BERT-base: scores and probabilities of 144
# heads, and hidden states, queries, keys and values. A batch may have as much as one row of 512, which is 0.4 GB.
_ROOM_IN_DETAIL = 512 * (512 + 128)
_BLOCK = 10  # consecutive sentences that the bootstrap draws together, because neighbours are alike
_MARKS = r"!-/:-@\[-`{-~‘’“”„«»…–—。、"  # not \W: vowel signs of Hindi are no letters to `re`


class MeasuredTable(NamedTuple):
    """Figures of a measure, as Python's own numbers: rows (`pandas.DataFrame(table.rows)`), and what is said once."""

    title: str
    rows: list[dict[str, Any]]
    facts: dict[str, Any]


def read_text(paths: Sequence[Path]) -> list[list[str]]:
    """Return sentences by document: a text file (blank lines, if any, divide paragraphs), or a corpus's validation."""
    documents = []
    for path in paths:
        if (path / "manifest.json").is_file():
            documents += [list(document.sentences) for document in read_documents(path, "validation")]
        else:
            lines = [line.strip() for _, line in numbered_lines(path)]
            texts = paragraphs_of(lines) if "\n\n" in "\n".join(lines).strip() else filter(None, lines)
            documents.append([part for text in texts for part in split_sentences(" ".join(text.split()))])
    return documents


def read_analogies(path: Path) -> list[tuple[str, list[str]]]:
    """Return section and words of lines of four words; `: NAME` begins a section."""
    section, rows = "", []
    for number, line in _written_lines(path):
        section = line[1:].strip() if line.startswith(":") else section
        rows += [] if line.startswith(":") else [(section, line.split())]
        if rows and len(rows[-1][1]) != 4:
            raise DataError(f"{path}:{number} needs four words with spaces between, or `: NAME` of a section: {line!r}")
    return rows


def whole_word(word: str, endings: str = "") -> re.Pattern[str]:
    """Return the pattern of a word where no letter or digit touches it, in any case; `endings` (`s|ed`) may follow."""
    return re.compile(rf"(?<!\w){re.escape(word)}(?:{endings})?(?!\w)", re.IGNORECASE)


def read_wic(path: Path) -> list[WicRow]:
    """Read `dev.data.txt` of WiC and, next to it, `dev.gold.txt` (Pilehvar and Camacho-Collados, arXiv 1808.09121).

    A line has the word, its part of speech, its places `i-j` in the two sentences (from 0, spaces divide words; marks
    around one are left out) and the sentences, with tabs between; the same line of the other file has T or F. A place
    that is outside is an error. A row with that of another word is left out with a warning: WiC itself has one.
    """
    if not path.name.endswith("data.txt"):
        raise DataError(f"{path} needs a name that ends in data.txt, and its answers stand next to it in gold.txt.")
    lines, rows = _written_lines(path), []
    gold = _written_lines(path.with_name(path.name.removesuffix("data.txt") + "gold.txt"))
    if len(lines) != len(gold):
        raise DataError(f"{path} has {len(lines)} rows, its gold file {len(gold)}; each row needs a T or F there.")
    for (number, line), (_, answer) in zip(lines, gold, strict=True):
        try:
            word, _, numbers, *two = line.split("\t")
            tokens = [[*re.finditer(rf"[{_MARKS}]*(\S*[^\s{_MARKS}]|\S)\S*", text)] for text in two]
            first, second = (each[int(at)].span(1) for each, at in zip(tokens, numbers.split("-"), strict=True))
            same = {"T": True, "F": False}[answer.strip()]
        except (ValueError, KeyError, IndexError) as error:
            raise DataError(
                f"{path}:{number} needs word, part of speech, places inside the sentences (2-4) and two sentences, "
                f"tabs between, and T or F in the gold file: {line!r}, {answer!r}"
            ) from error
        # Any word may be a form (went of go), but not where a regular one stands elsewhere.
        form, at_place = whole_word(word, "s|es|d|ed|ing"), (two[0][slice(*first)], two[1][slice(*second)])
        if any(form.search(text) and not form.search(shown) for text, shown in zip(two, at_place, strict=True)):
            warn(f"{path}:{number} is left out: at the places of {word!r} stand {' and '.join(at_place)}.")
        else:
            rows.append((word, (two[0], two[1]), (first, second), same))
    return rows


def places(model: LoadedModel, texts: Sequence[str], spans: Sequence[_Span]) -> tuple[dict[str, _Array], int]:
    """Compute the vectors of a place (`text[start:end]`) of each of n texts; several tokens are averaged.

    Returns:
        Vectors [n, size] by name, and how many texts were cut. `static` is the input embedding of the place, and `other
        words` the sum of those of all other tokens, in no order.
    """
    layout, table = model.tokenizer.single, model.encoder.word_embeddings.detach().cpu().numpy()
    sequences, bounds, static, others, num_cut = [], [], [], [], 0
    encoded = model.tokenizer.encode_with_places(list(texts))
    for text, (start, stop), (ids, offsets) in zip(texts, spans, encoded, strict=True):
        own = [at for at, (begin, end) in enumerate(offsets) if begin < stop and end > start]
        if not own:
            raise DataError(f"{text[start:stop]!r} has no token of its own in {text!r}.")
        window, first = _window(model, ids, own[0], own[-1] + 1)
        sequences.append(layout.sequence(window))
        bounds.append((len(layout.before) + first, len(layout.before) + first + len(own)))
        static.append(table[ids[own[0] : own[-1] + 1]].mean(0))
        others.append(table[ids[: own[0]] + ids[own[-1] + 1 :]].sum(0))
        num_cut += len(window) < len(ids)
    edges = torch.tensor(bounds, device=model.device)

    def means(indices: Any, *inputs: Any) -> Any:
        layers = model.encoder.forward_in_detail(*inputs).hidden_states
        at, (first, last) = torch.arange(layers[0].shape[1], device=model.device), edges[indices].T[..., None]
        own = ((at >= first) & (at < last)).float() / (last - first)
        return torch.stack([torch.einsum("bsh,bs->bh", states, own) for states in layers], dim=1)

    layers = _computed(model, sequences, means, max_tokens=_ROOM_IN_DETAIL // (max(map(len, sequences)) + 128))
    by_layer = {f"layer {layer}": layers[:, layer] for layer in range(layers.shape[1])}
    return {"static": np.stack(static), "other words": np.stack(others), **by_layer}, num_cut


def senses(model: LoadedModel, word: str, sentences: Mapping[str, Sequence[str]]) -> MeasuredTable:
    """Compare a word's vectors within and between senses, and tell the sense by the nearest one in another sentence.

    A static vector has a similarity of 1 with itself wherever it stands: it can but name the most frequent sense. The
    word counts at all places where it stands as a whole word, in any case.
    """
    occurrences = []
    for number, (sense, text) in enumerate((sense, text) for sense, own in sentences.items() for text in own):
        matches = [*whole_word(word).finditer(text)]
        if not matches:
            raise DataError(f"the word {word!r} is not in {text!r} as a whole word.")
        occurrences += [(text, match.span(), sense, number) for match in matches]
    if len(sentences) < 2 or min(map(len, sentences.values())) < 2:
        counts = ", ".join(f"{sense}: {len(own)}" for sense, own in sentences.items())
        raise DataError(f"{word!r} needs two sentences of each of two senses, no letter touching it; found: {counts}.")
    texts, spans, labels, numbers = zip(*occurrences, strict=True)
    (vectors, num_cut), label, sentence = places(model, texts, spans), np.array(labels), np.array(numbers)
    alike, apart, rows = label[:, None] == label, sentence[:, None] != sentence, []
    for name, states in vectors.items():
        similarity = unit(states) @ unit(states).T
        right = label[np.where(apart, similarity, -np.inf).argmax(1)] == label
        within, between = similarity[alike & apart].mean().item(), similarity[~alike].mean().item()
        rows.append({"vectors": name, "within": within, "between": between, "accuracy": right.mean().item()})
    rows[0]["accuracy"] = Counter(labels).most_common(1)[0][1] / len(labels)
    return MeasuredTable(f"Senses of {word!r}", rows, {"places": len(labels), "num_cut": num_cut})


def wic(model: LoadedModel, rows: Sequence[WicRow], test_rows: Sequence[WicRow] = ()) -> MeasuredTable:
    """Tell whether a word has the same sense in two sentences, by a threshold on the cosine of its vectors.

    Thresholds, the layer and the strongest simple method are chosen on `rows` and scored on `test_rows`; without these
    on the words of one half, and scored on those of the other. The most frequent answer, too, is that of the rows where
    all is chosen. The bootstrap draws the rows of a word together.
    """
    if len({word for word, *_ in rows}) < 2 - bool(test_rows):
        raise DataError("WiC needs rows of at least two words, or a second file, to choose on and to score on.")
    words, texts, spans, answers = zip(*rows, *test_rows, strict=True)
    word, same = np.array(words), np.array(answers)
    test = np.arange(len(word)) >= len(rows) if test_rows else _second_half(word)
    sides = [places(model, *side) for side in zip(zip(*texts, strict=True), zip(*spans, strict=True), strict=True)]
    right = {"most frequent answer": same == (same[~test].mean() >= 0.5)}
    for name, first in sides[0][0].items():
        cosine = (unit(first) * unit(sides[1][0][name])).sum(1)
        thresholds = np.append(np.unique(cosine[~test]), np.inf)
        best = ((cosine[~test] >= thresholds[:, None]) == same[~test]).sum(1).argmax()
        right[name] = (cosine >= thresholds[best]) == same
    table = [
        {
            "vectors": name,
            "where_chosen": hits[~test].mean().item(),
            "test": hits[test].mean().item(),
            "interval": bootstrapped(hits[test], word[test]),
        }
        for name, hits in right.items()
    ]
    chosen = max((name for name in right if name not in _SIMPLE), key=lambda name: right[name][~test].mean())
    facts = {
        "rows": int((~test).sum()),
        "test_rows": int(test.sum()),
        "num_cut": sides[0][1] + sides[1][1],
        "chosen": chosen,
        **_gain(right, chosen, _SIMPLE, test, word),
    }
    return MeasuredTable("WiC: the same sense?", table, facts)


def blanks(model: LoadedModel, documents: _Documents, *, most: int = 2000, seed: int = 0) -> MeasuredTable:
    """Fill a blank in each of `most` sentences from both sides and, by the same encoder, from the left side alone.

    A blank is a whole word of one token, drawn at random. What stands at its right is removed, with [SEP] behind the
    blank (as if the sentence ended there) or nothing at all, or it is hidden by as many [MASK]. No encoder was trained
    to read so: this is what it loses, not what a model made for reading from left to right reaches. `nats` is the mean
    of -log p. The unigram distribution is that of the text's other such words (unseen ones by Good and Turing).
    """
    model.fill_mask(MASK, top_k=1)  # raises without the head
    tokenizer, layout, mask = model.tokenizer, model.tokenizer.single, model.tokenizer.mask_id
    chosen = _sample(documents, most, seed, ahead=0)
    texts = [documents[d][s] for d, s in chosen]
    random, counts, drawn, num_cut = generator(seed, "blanks"), Counter[int](), [], 0
    for text, (d, s), (ids, offsets) in zip(texts, chosen, tokenizer.encode_with_places(texts), strict=True):
        words = {match.span() for match in re.finditer(r"[^\W\d_]+", text)}
        whole = [at for at, span in enumerate(offsets) if span in words and ids[at] != tokenizer.unk_id]
        counts.update(ids[at] for at in whole)
        if whole:
            at = int(random.choice(whole))
            window, first = _window(model, ids, at, at + 1)
            drawn.append(([*layout.before, *window[:first], mask], window[first + 1 :], ids[at], f"{d}/{s // _BLOCK}"))
            num_cut += len(window) < len(ids)
    if len(drawn) < 2 * _BLOCK:  # so that there are two blocks
        raise DataError(f"{len(drawn)} of {len(texts)} sentences have a word to fill; expected {2 * _BLOCK} or more.")
    left, right, targets, blocks = zip(*drawn, strict=True)
    end, both = list(layout.after), list(zip(left, right, strict=True))
    sequences = {
        "both sides": [before + behind + end for before, behind in both],
        "left, [SEP]": [before + end for before in left],
        "left": list(left),
        "left, [MASK]s": [before + [mask] * len(behind) + end for before, behind in both],
    }
    wanted, place = torch.tensor(targets)[:, None], torch.tensor([[len(before) - 1] for before in left])

    def fill(indices: Any, *inputs: Any) -> Any:
        logits = model.model(*inputs, place[indices].to(model.device)).mlm_logits[:, 0].log_softmax(-1)
        target = wanted[indices].to(model.device)
        return torch.cat([logits.argmax(-1, keepdim=True) == target, -logits.gather(1, target)], dim=1)

    scores = {name: _computed(model, inputs, fill) for name, inputs in sequences.items()}
    number, seen = counts.total(), np.array([counts[index] for index in targets])
    unseen = max(sum(count == 1 for count in counts.values()), 1) / number
    nats = -np.log((1 - unseen) * (seen - 1) / (number - 1) + unseen / tokenizer.vocab_size)
    scores["unigram"] = np.stack([np.array(targets) == counts.most_common(1)[0][0], nats], axis=1)
    rows = []
    for name, values in scores.items():
        lost, more = (scores["both sides"] - values).T * [[1], [-1]]
        row = {
            "reads": name,
            "accuracy": values[:, 0].mean().item(),
            "nats": values[:, 1].mean().item(),
            "lost": lost.mean().item(),
            "lost_interval": bootstrapped(lost, blocks),
            "more_nats": more.mean().item(),
            "nats_interval": bootstrapped(more, blocks),
        }
        rows.append(row)
    facts = {"blanks": len(targets), "sentences_without_a_word": len(texts) - len(targets), "num_cut": num_cut}
    return MeasuredTable("Blanks: both sides against the left side alone", rows, facts)


def analogies(model: LoadedModel, rows: Sequence[tuple[str, Sequence[str]]], *, seed: int = 0) -> MeasuredTable:
    """Answer "a is to b as c is to ?" by the token whose input embedding is nearest to b - a + c, and by less.

    `c_alone` is the nearest neighbour of c, `random` has two random tokens for a and b. As usual, a, b and c are no
    answers: rows that ask for one are left out, and those with a word of several tokens. `with_inputs` is the accuracy
    when they are, `is_input` how often one is named then. The interval draws pairs of words, a row as often as both of
    its own (Owen 2007). (Mikolov et al., arXiv 1301.3781, section 4; Linzen, arXiv 1606.07736: what neighbours do.)
    """
    tokenizer, special = model.tokenizer, sorted(model.tokenizer.special_ids)
    encoded = [(section, tokenizer.encode_words(list(words))) for section, words in rows]
    known = [(section, np.ravel(ids)) for section, ids in encoded if [*map(len, ids)] == [1] * 4]
    known = [(name, ids) for name, ids in known if not np.isin(ids, special).any() and ids[3] not in ids[:3]]
    if not known:
        raise DataError(f"none of the {len(rows)} analogies has four words of one token each, the last one new.")
    table = unit(model.encoder.word_embeddings.detach().cpu().numpy()[: tokenizer.vocab_size])
    sections, every = np.array([section for section, _ in known]), np.stack([ids for _, ids in known])
    others = np.setdiff1d(np.arange(len(table)), special)
    (a, b, c, wanted), (x, y) = every.T, generator(seed, "analogies").choice(others, size=(2, len(every)))

    def answers(queries: _Array, excluded: _Array = every[:, :3]) -> _Array:
        parts = []
        for start in range(0, len(queries), 512):
            similarity = queries[start : start + 512] @ table.T
            similarity[:, special] = -np.inf
            np.put_along_axis(similarity, excluded[start : start + 512], -np.inf, axis=1)
            parts.append(similarity.argmax(1))
        return np.concatenate(parts)

    offset = table[b] - table[a] + table[c]
    free = answers(offset, every[:, :0])
    right = {
        "offset": answers(offset) == wanted,
        "c_alone": answers(table[c]) == wanted,
        "random": answers(table[y] - table[x] + table[c]) == wanted,
        "with_inputs": free == wanted,
        "is_input": (free[:, None] == every[:, :3]).any(1),
    }
    lines = []
    for name in [*dict.fromkeys(sections.tolist()), "all"]:
        part = (sections == name) | (name == "all")
        lines.append({"section": name, "rows": int(part.sum()), **{k: x[part].mean().item() for k, x in right.items()}})
    facts = {"left_out": len(rows) - len(known), "by_chance": 1 / (len(others) - 3)}
    pairs = every[:, ::2] * len(table) + every[:, 1::2]
    gain = _gain(right, "offset", ["c_alone"], np.full(len(every), True), pairs)
    return MeasuredTable("Analogies on input embeddings", lines, facts | gain)


def next_sentences(model: LoadedModel, documents: _Documents, *, most: int = 2000, seed: int = 0) -> MeasuredTable:
    """Tell whether a sentence follows another one, on pairs of which half do, before and after calibration.

    The other pairs have a random sentence, of the same document and of another one in turn. Lines on the log odds
    (Platt 1999) and on two simple methods, word overlap and the cosine of TF-IDF, are fitted on half of the text, where
    the better of the two is chosen; the other half is scored. `ece` is the expected calibration error of P(follows) in
    ten bins (Guo et al., arXiv 1706.04599, section 2), above 0 by chance. ALBERT's head tells swapped sentences.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    model.next_sentence("a", "b")  # raises without the head
    documents = [document for document in documents if document]
    chosen, random, drawn = _sample(documents, most, seed, ahead=1), generator(seed, "pairs"), []
    halves = _second_half(blocks := np.array([f"{d}/{s // _BLOCK}" for d, s in chosen]))
    numbers = np.argsort(np.argsort(halves, kind="stable"))  # half by half: each has pairs that follow, and others
    for number, (d, s), block, half in zip(numbers, chosen, blocks, halves, strict=True):
        kind, pool = "follows", [follower := documents[d][s + 1]]
        if number % 2:  # the same text elsewhere would be a right answer that counts as wrong
            kind, pool = "same_doc", [text for text in (*documents[d][:s], *documents[d][s + 2 :]) if text != follower]
            if len(documents) > 1 and (number % 4 == 1 or not pool):
                kind, other = "other_doc", documents[d - int(random.integers(1, len(documents)))]
                pool = [text for text in other if text != follower]
        if pool:
            drawn.append((documents[d][s], pool[int(random.integers(len(pool)))], kind, block, half))
    counts = np.bincount([2 * half + (kind == "follows") for *_, kind, _, half in drawn], minlength=4).tolist()
    if min(counts) < _BLOCK // 2 or len(drawn) < 4 * _BLOCK:
        raise DataError(f"{counts[1::2]} pairs follow by half, {counts[::2]} do not; expected 5 of each, 40 in all.")
    firsts, seconds, *columns = zip(*drawn, strict=True)
    kind_of, groups, test = map(np.array, columns)
    sequences = encode_texts(firsts, seconds, model.tokenizer, max_length=model.max_length)
    logits = _computed(model, sequences, lambda _, *inputs: model.model(*inputs, inputs[0][:, :1] * 0).nsp_logits)
    log_odds = logits[:, 0] - logits[:, 1].astype(float)  # class 0 is the next segment
    bags = [[{*re.findall(r"\w+", text.lower())} for text in pair] for pair in zip(firsts, seconds, strict=True)]
    shared = np.array([len(first & second) / max(len(first | second), 1) for first, second in bags])
    tf_idf = TfidfVectorizer(token_pattern=r"\w+|\S").fit(text for each in documents for text in each).transform
    alike = np.asarray(tf_idf(firsts).multiply(tf_idf(seconds)).sum(1)).ravel()
    methods = {"model, Platt": log_odds, "word overlap": shared, "TF-IDF cosine": alike}
    follows, rows, line = kind_of == "follows", [], LogisticRegression(C=1e6).fit
    chances = {"model": 1 / (1 + np.exp(-log_odds))}
    chances |= {k: line(x[~test, None], follows[~test]).predict_proba(x[:, None])[:, 1] for k, x in methods.items()}
    hits, bins = {name: (chance >= 0.5) == follows for name, chance in chances.items()}, dict[str, Any]()
    for name, right in hits.items():
        hit, p, y = right[test], chances[name][test], follows[test]
        parts = [part for part in (np.minimum(p * 10, 9).astype(int) == np.arange(10)[:, None]) if part.any()]
        bins[name] = [[int(part.sum()), float(p[part].mean()), float(y[part].mean())] for part in parts]
        row = {
            "probabilities": name,
            "accuracy": hit.mean().item(),
            "interval": bootstrapped(hit, groups[test]),
            **{kind: hit[kind_of[test] == kind].mean().item() for kind in np.unique(kind_of[test]).tolist()},
            "nats": -np.log(np.maximum(np.where(y, p, 1 - p), 1e-12)).mean().item(),
            "ece": sum(pairs * abs(mean - share) for pairs, mean, share in bins[name]) / len(y),
        }
        rows.append(row)
    facts = {
        "pairs": len(drawn),
        "test_pairs": len(y),
        "num_cut": int(sequences.cut.sum()),
        "reliability": bins,
        "left_out": len(chosen) - len(drawn),
        **_gain(hits, "model, Platt", [*methods][1:], test, groups),
    }
    return MeasuredTable("Does the second sentence follow the first?", rows, facts)


def bootstrapped(values: _Array, groups: Sequence[str] | _Array) -> list[float] | None:
    """Return the 95 % interval of a mean by a bootstrap of groups ([n], or [n, 2]: both drawn); None for under ten."""
    names, group = np.unique(groups, return_inverse=True)
    if len(names) < 10:
        return None
    draws = generator(0, "interval").integers(len(names), size=(1000, len(names)))
    counts = (np.bincount(drawn, minlength=len(names))[group.reshape(len(values), -1)].prod(1) for drawn in draws)
    bounds = np.quantile([count @ values / count.sum() for count in counts if count.any()], [0.025, 0.975])
    return [round(float(bound), 3) for bound in bounds]


def _gain(right: Mapping[str, _Array], name: str, simple: Sequence[str], test: _Array, groups: Any) -> dict[str, Any]:
    strongest = max(simple, key=lambda one: right[one][~test].sum())
    gain = (right[name] * 1.0 - right[strongest])[test]
    return {
        "strongest_simple": strongest,
        "gain": float(gain.mean()),
        "gain_interval": bootstrapped(gain, groups[test]),
    }


@torch.no_grad()
def _computed(
    model: LoadedModel, inputs: Sequences | list[list[int]], read: Callable[..., Any], *, max_tokens: int = 4096
) -> _Array:
    """Return what `read` makes of indices, input_ids, token_type_ids and attention_mask of batches, in order."""
    parts, order, pad_id = [], [], model.tokenizer.pad_id
    sequences = padded_sequences(inputs, [*map(len, inputs)], pad_id=pad_id) if isinstance(inputs, list) else inputs
    for indices, batch in scoring_batches(sequences, max_tokens=max_tokens):
        on_device = (values.to(model.device) for values in batch.values())
        parts.append(read(torch.from_numpy(indices), *on_device).float().cpu().numpy())
        order.append(indices)
    return np.concatenate(parts)[np.argsort(np.concatenate(order))]


def _window(model: LoadedModel, ids: list[int], first: int, last: int) -> tuple[list[int], int]:
    """Return the tokens that fit around a place, and where it begins among them."""
    room = model.tokenizer.single.room(model.max_length)
    start = max(min((first + last - room) // 2, len(ids) - room), 0)
    return ids[start : start + room], first - start


def _second_half(groups: _Array) -> NDArray[np.bool_]:
    names, group = np.unique(groups, return_inverse=True)
    return (generator(0, "halves").permutation(len(names)) >= len(names) // 2)[group]


def _sample(documents: _Documents, most: int, seed: int, *, ahead: int) -> list[tuple[int, int]]:
    """Draw document and place of sentences with at least `ahead` others behind them."""
    every = [(d, s) for d, document in enumerate(documents) for s in range(len(document) - ahead)]
    return [every[index] for index in generator(seed, "sample").permutation(len(every))[:most]]


def _written_lines(path: Path) -> list[tuple[int, str]]:
    return [(number, line) for number, line in numbered_lines(path) if line.strip()]
