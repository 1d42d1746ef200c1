"""A page that shows what an encoder computes for one text: attention, vectors and guesses, layer by layer.

Shapes: L layers of N heads with D channels, S tokens of which R are shown, hidden size H.
"""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import torch
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from numpy.typing import NDArray

from bertline.foundation.errors import DataError
from bertline.foundation.formats import count, printable, short_title
from bertline.inference.model import BLANK, Inside, LoadedModel
from bertline.kinds.inputs import require_text
from bertline.modeling.families import FAMILIES
from bertline.tokenization.vocabulary import MASK

# Attention weights, queries, keys and values of a page of 24 layers of 16 heads with 64 channels
# and 64 tokens.
_MAX_NUMBERS = 4 * 24 * 16 * 64 * 64
# Attention weights of a page without queries, keys and values, which takes as much room.
_MAX_WEIGHTS = 4_000_000
# Numbers of a page of 12 layers of 12 heads and 32 tokens, and their characters; each further
# number has one.
_ROOM = 1_100_000, 900_000
# Steps to whose multiples numbers are rounded; those of vectors follow from the room that is left.
_STEPS = {"scores": 0.01, "similarity": 0.01, "map": 0.01}
# Multiple of a step that a number is at most: it has 16 bits, and the three digits of a step may
# round it down.
_LARGEST = 32_000
_BY_HEAD = ("query", "key", "value")


def look_page(models: Sequence[LoadedModel], text: str, pair: str | None = None) -> tuple[str, list[str]]:
    """Return the page of one model, or of two side by side, as HTML, and what was left out, a sentence each.

    Raises:
        DataError: A text is empty, longer than a model reads, or not Unicode; or a model cannot read two texts.
    """
    refuse_unreadable(text, pair)
    facts = [facts_of(model, text, pair) for model in models]
    paths, num_parts = [PurePosixPath(model.name).parts for model in models], 2
    while facts[0]["name"] == facts[-1]["name"] and paths[0] != paths[-1]:
        num_parts += 1
        for one, parts in zip(facts, paths, strict=True):
            one["name"] = "/".join(parts[-num_parts:])
    note, num_compared = "", min(one["num_shown"] for one in facts)
    if facts[0]["tokens"][:num_compared] != facts[-1]["tokens"][:num_compared]:
        note = (
            f"The two models have different vocabularies ({count(models[0].tokenizer.vocab_size)} and "
            f"{count(models[-1].tokenizer.vocab_size)} tokens), so they split the text into different tokens: compare "
            "them by words, not by places."
        )
    left_out = [f"{one['name']}: {sentence}" for one in facts for sentence in one["left_out"]]
    return _rendered(facts, text, pair, note), left_out


def facts_of(model: LoadedModel, text: str, pair: str | None = None) -> dict[str, Any]:
    """Return what the page shows of a model for a text or pair, by the names that look.js reads; see `look_page`.

    `tokens` are the R tokens that are shown and, if the text has more, one that stands for all others
    as keys. `missing` says why `vectors`, `embeddings` or `lens` are not there, `left_out` what a
    shorter text would show as well, a sentence each. `arrays` holds the numbers, which the page has
    packed.
    """
    tokenizer, config = model.tokenizer, model.encoder.config
    if pair is not None and not tokenizer.pair.between:
        raise DataError(f"{model.name} reads no two texts: its tokenizer puts nothing between them. Leave pair out.")
    read = [BLANK.sub(MASK, each) for each in (text, pair) if each is not None]
    for each in read:
        if not tokenizer.encode(each):
            raise DataError(f"{each!r} has no token for {model.name}; give a text with words.")
    inside = model.inside(*read)
    ids = inside.ids
    num_layers, num_heads, num_tokens, _ = inside.probabilities.shape
    shown = min(num_tokens, int((_MAX_WEIGHTS / (num_layers * num_heads)) ** 0.5))
    family = FAMILIES[config.family]
    own = ", ".join(name for name, one in FAMILIES.items() if one.can("attention_vectors"))
    missing: dict[str, str] = {}
    left_out: list[str] = []
    embeddings: dict[str, Any] = {"embedding_shapes": {}, "embedding_rows": {}, "norm_epsilon": 0.0}
    arrays: dict[str, Any] = {"scores": _scores(inside, shown)}
    if inside.query is None or inside.key is None or inside.value is None:
        missing = {
            "vectors": (
                f"{family.title} computes attention in a class of transformers, which returns its "
                "probabilities alone, so there are no queries, keys and values here; families that load "
                f"into BertModel ({own}) have them."
            ),
            "embeddings": (
                f"{family.title} makes its input in a class of transformers, not as the plain sum of "
                f"three embeddings; families that load into BertModel ({own}) show theirs here."
            ),
        }
    else:
        if inside.probabilities.size + 3 * inside.query.size > _MAX_NUMBERS or shown < num_tokens:
            missing["vectors"] = (
                f"Left out to keep the page small: the queries, keys and values of {num_tokens} tokens (neuron, and "
                "the output in table). A shorter text shows them."
            )
            left_out.append(missing["vectors"])
        else:
            arrays |= {name: getattr(inside, name) for name in _BY_HEAD}
        embeddings, added = _embeddings(model.encoder.embeddings, ids[:shown], inside.segments[:shown])
        arrays |= added
    if shown < num_tokens:
        left_out.append(
            f"The model read {num_tokens} tokens, and {num_tokens - shown} are left out to keep the page small: the "
            f"first {shown} are shown, and what they attend to in the others is their last column"
            f"{'' if pair is None else ', which belongs to neither text'}."
        )
    arrays |= _places(inside.hidden_states[:, :shown])
    has_lens = hasattr(model.model, "mlm_logits")
    if not has_lens:
        missing["lens"] = (
            "This model has no masked language model head, which fills blanks: take artifacts/pretrain, for example."
        )
    edges = (tokenizer.cls_id, tokenizer.sep_id)  # they begin, separate or end texts
    rest = [f"({num_tokens - shown} more)"] * (shown < num_tokens)
    return {
        "name": short_title(model.name),
        "description": f"{family.title}, {num_layers} layers of {num_heads} heads, hidden size {config.hidden_size}",
        "num_layers": num_layers,
        "num_heads": num_heads,
        "tokens": [*tokenizer.readable_tokens(ids[:shown]), *rest],
        "num_tokens": num_tokens,
        "num_shown": shown,
        "segments": [*inside.segments[:shown]],  # the token for all others has none
        "are_special": [index in edges for index in ids[:shown]] + [False] * len(rest),
        **embeddings,
        "lens": _lens(model, inside.hidden_states, ids, shown) if has_lens else None,
        "missing": missing,
        "left_out": left_out,
        "arrays": arrays,
    }


def packed(arrays: Mapping[str, NDArray[np.float32]]) -> tuple[dict[str, Any], str]:
    """Return the layout of arrays and their numbers as text in the `_ROOM` for them, which look.js reads.

    Numbers are rounded to multiples of a step, deflated, and written in base 64.
    """
    sizes = {name: values.size for name, values in arrays.items()}
    finer = 8 if sum(sizes.values()) < 1 << 18 else 1  # there is room for more precision
    steps = {name: _wide(arrays[name], np.array([step / finer])) for name, step in _STEPS.items() if name in arrays}
    # Multiples of a step take at most log2(deviation / step) + 2.05 bits, those of a normal distribution.
    bits = sum(sizes[name] * max(0.5, np.log2(arrays[name].std() / step[0]) + 2.05) for name, step in steps.items())
    others = [name for name in arrays if name not in steps]
    room = 6 * (_ROOM[1] + max(0, sum(sizes.values()) - _ROOM[0])) - bits
    # With less than 2 steps to a root mean square little more than signs is left; more than 128 are finer than colours.
    fineness = 2 ** np.clip(room / max(1, sum(sizes[name] for name in others)) - 2.05, 1, 7)
    for name in others:
        squares = np.square(arrays[name]).mean(axis=(2, 3) if name in _BY_HEAD else None)
        finer = 16 if name == "norm" else 1  # it multiplies all others, and has few numbers
        steps[name] = _wide(arrays[name], np.sqrt(squares).reshape(-1).clip(1e-6) / (fineness * finer))
    layout, planes = {}, []
    for name, values in arrays.items():
        rounded = np.array([float(f"{step:.3g}") for step in steps[name]])
        whole = np.rint(values.reshape(len(rounded), -1) / rounded[:, None]).astype(np.int16)
        # Small numbers of either sign become small ones without; then almost all upper bytes are 0 and cost nothing.
        unsigned = ((whole << 1) ^ (whole >> 15)).view(np.uint16).ravel()
        planes += [(unsigned & 255).astype(np.uint8), (unsigned >> 8).astype(np.uint8)]
        layout[name] = {"shape": values.shape, "steps": rounded.tolist()}
    # Runs of zeros and frequent bytes alone: a search for longer matches finds chance ones, which cost a tenth more.
    deflate = zlib.compressobj(strategy=zlib.Z_RLE)
    data = deflate.compress(b"".join(plane.tobytes() for plane in planes)) + deflate.flush()
    return {"arrays": layout}, base64.b64encode(data).decode()


def refuse_unreadable(text: str, pair: str | None) -> None:
    """Raise a `DataError` if a text is empty or not Unicode."""
    for name, each in (("the text", text), ("the second text", pair)):
        if each is not None and not require_text(each, name).strip():
            raise DataError(f"{name} is empty; give a sentence.")


def _wide(values: NDArray[np.float32], steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the steps of groups of values, or wider ones where a value would not fit."""
    return np.maximum(steps, np.abs(values).reshape(len(steps), -1).max(axis=1) / _LARGEST)


def _scores(inside: Inside, shown: int) -> NDArray[np.float32]:
    """Return what the softmax reads for the shown queries, and keys, as [L, N, R, R]; [L, N, R, R + 1] if there are
    more keys, whose probabilities the last one has together."""
    scores = inside.scores
    if scores is None:  # logarithms have the same softmax
        scores = np.log(inside.probabilities.clip(1e-12))
    scores, others = scores[:, :, :shown, :shown], scores[:, :, :shown, shown:]
    if others.shape[-1]:
        scores = np.concatenate([scores, np.logaddexp.reduce(others, -1, keepdims=True)], -1)
    return scores


def _embeddings(
    module: Any, ids: Sequence[int], segments: Sequence[int]
) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
    """Return the shapes and rows of the three embeddings, and their vectors: [R, H], segments [2, H], norm [2, H]."""
    tables = {
        "token": module.word_embeddings,
        "segment": module.token_type_embeddings,
        "position": module.position_embeddings,
    }
    rows = {"token": list(ids), "segment": list(segments), "position": list(range(len(ids)))}
    if tables["segment"] is not None and tables["segment"].num_embeddings == 1:
        rows["segment"] = [0] * len(ids)
    present = {name: table.weight.detach().cpu() for name, table in tables.items() if table is not None}
    vectors = {name: weight[slice(2) if name == "segment" else rows[name]].numpy() for name, weight in present.items()}
    vectors["norm"] = torch.stack([module.norm.weight, module.norm.bias]).detach().cpu().numpy()
    facts = {
        "embedding_shapes": {name: " × ".join(map(str, weight.shape)) for name, weight in present.items()},
        "embedding_rows": {name: rows[name] for name in present},
        "norm_epsilon": module.norm.eps,
    }
    return facts, vectors


def _places(states: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Return the cosine similarity of tokens after each layer, and where they lie on a map that all layers share.

    In a layer all vectors have much in common, which tells nothing of tokens: their mean is taken off first. The map
    has the two directions in which the vectors of all layers, of length one, differ most.
    """
    apart = states - states.mean(1, keepdims=True)
    unit = apart / np.linalg.norm(apart, axis=-1, keepdims=True).clip(1e-12)
    flat = unit.reshape(-1, unit.shape[-1])
    directions = np.linalg.eigh(flat.T @ flat)[1][:, :-3:-1]
    return {"similarity": unit @ unit.transpose(0, 2, 1), "map": unit @ directions}


@torch.no_grad()
def _lens(model: LoadedModel, states: NDArray[np.float32], ids: Sequence[int], shown: int) -> dict[str, Any]:
    """Predict all blanks, else all shown tokens, from the vectors after each layer by the model's own head.

    `ids`, [L + 1][places][guesses], are places in `words`, most likely first.
    """
    tokenizer = model.tokenizer
    blanks = [place for place, index in enumerate(ids) if index == tokenizer.mask_id]
    places = blanks or list(range(shown))
    special = torch.tensor(sorted(tokenizer.special_ids))
    # ModernBERT normalises behind the last layer, as its head expects.
    norm = getattr(getattr(model.encoder, "hf", None), "final_norm", None)
    best = []
    for layer, vectors in enumerate(torch.from_numpy(states[:, places]).to(model.device)):
        ready = vectors if norm is None or layer == len(states) - 1 else norm(vectors)
        logits = model.model.mlm_logits(ready[None])[0, :, : tokenizer.vocab_size].cpu()
        best.append(logits.softmax(-1).index_fill(1, special, -1.0).topk(4))
    chosen = [one.indices.tolist() for one in best]
    different = sorted({index for layer in chosen for place in layer for index in place})
    numbers = {index: number for number, index in enumerate(different)}
    return {
        "places": places,
        "are_blanks": bool(blanks),
        "words": tokenizer.readable_tokens(different),
        "ids": [[[numbers[index] for index in place] for place in layer] for layer in chosen],
        "probabilities": [[[round(value, 3) for value in place] for place in one.values.tolist()] for one in best],
    }


def _rendered(facts: Sequence[Mapping[str, Any]], text: str, pair: str | None, note: str) -> str:
    # The colours and the basic style are those of the report.
    loader = ChoiceLoader([PackageLoader("bertline.inside"), PackageLoader("bertline.evaluation")])
    environment = Environment(
        loader=loader, autoescape=select_autoescape(), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_function"] = lambda value, **_: json.dumps(value, separators=(",", ":"))
    layouts, numbers = zip(*(packed(one["arrays"]) for one in facts), strict=True)
    models = [{**one, **layout} for one, layout in zip(facts, layouts, strict=True)]
    # As they are: `{{` or `{#` mean something else in them than in a template.
    sources = {name: Markup(loader.get_source(environment, name)[0]) for name in ("style.css", "look.css", "look.js")}
    page = environment.get_template("look.html").render(
        page={"models": models},
        data=map(Markup, numbers),
        text=text,
        pair=pair,
        note=note,
        models=models,
        sources=sources,
    )
    return printable(page)
