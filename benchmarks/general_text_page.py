"""What the records of benchmarks/general_text.py say: opponents with a verdict each, the choice on dev, and pages."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import repository_source  # noqa: F401
from scipy.special import stdtrit

from bertline.foundation.formats import signed
from bertline.foundation.verdicts import SIGNIFICANT

RESULTS = Path(__file__).resolve().parent / "results"
NAME = "wiki_mini_glue"
"""First part of the names of all records, one for each recipe."""
GOALS = ("sst2", "qnli", "stsb")
"""Sets on which the encoder shall be above TF-IDF."""
OPPONENTS: Mapping[str, str] = {"goal": "TF-IDF", "ngrams": "n-grams", "pair_features": "pair features"}
"""Opponents: TF-IDF as published when the goal was set, and two of today's baselines of the sweep, with titles."""
PUBLISHED: Mapping[str, Mapping[str, str]] = {
    "BERT-Tiny": {
        "average": "64.2", "cola": "0.0", "sst2": "83.2", "mrpc": "81.1 / 71.1", "stsb": "74.3 / 73.6",
        "qqp": "62.2 / 83.4", "mnli": "70.2 / 70.3", "qnli": "81.5", "rte": "57.2", "wnli": "62.3",
    },
    "BERT-Mini": {
        "average": "65.8", "cola": "0.0", "sst2": "85.9", "mrpc": "81.1 / 71.8", "stsb": "75.4 / 73.3",
        "qqp": "66.4 / 86.2", "mnli": "74.8 / 74.3", "qnli": "84.1", "rte": "57.9", "wnli": "62.3",
    },
}  # fmt: skip
"""Scores on GLUE's test server, in hundredths, by set (google-research/bert, README, release of 11 March 2020)."""
_FIXED = "fixed recipe"


def goal_scores() -> dict[str, list[float]]:
    """Return the scores of TF-IDF in results/glue.md by title of the set, which the project had published when the goal
    was set; a set with two metrics has both.

    They are of linear models on n-grams of words (each text of a pair has its own columns); of STS-B also on the cosine
    of the TF-IDF vectors of the two texts.
    """
    lines = (RESULTS / "glue.md").read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| set |"))
    place = _cells(lines[first]).index("TF-IDF")
    found = {}
    for line in lines[first + 2 :]:
        if not line.startswith("| ") or line.startswith("| average"):
            break
        cells = _cells(line)
        found[cells[0]] = [float(score) for score in cells[place].split(" / ")]
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def row_of(glue_set: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a set of GLUE has, of its entry in the table of `bertline glue` and of the sweep's result.json."""
    encoder, baselines = result["arms"]["encoder"], result["baselines"]
    seconds = [run["time_s"] or 0.0 for arm in result["arms"].values() for run in (*arm["trials"], *arm["seeds"])]
    trivial = next(baselines[name] for name in ("majority", "mean") if name in baselines)
    scores = []
    for split, metric in ((split, metric) for split, metrics in glue_set["scores"].items() for metric in metrics):
        seeds = [seed["scores"][split][metric] for seed in encoder["seeds"]]
        own = {**encoder["scores"][split][metric], "seeds": seeds, "trivial": trivial["scores"][split][metric]}
        scores.append({"split": split, "metric": metric, **own})
    return {
        **{key: glue_set.get(key, "") for key in ("name", "title", "note")},
        "scores": scores,
        "train_rows": result["rows"]["train"],
        "test_rows": sum(result["rows"][split] for split in glue_set["scores"]),
        "num_seeds": len(encoder["seeds"]),
        "num_diverged": encoder["num_diverged"],
        # The intervals and comparisons, on test, count the noise of seeds and rows.
        "metric": result["metric"],
        "dev": [seed["dev"] for seed in encoder["seeds"]],
        "interval": encoder["test_interval"],
        "comparisons": {name: result["comparisons"][name] for name in baselines},
        "baselines": {name: {key: one[key] for key in ("dev", "scores")} for name, one in baselines.items()},
        "minutes": sum(seconds) / 60,
    }


def average(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean of the scores; a set with two metrics counts as their mean (arXiv 1804.07461, section 3)."""
    means = [statistics.fmean(one["mean"] for one in row["scores"]) for row in rows]
    return statistics.fmean(means) if means else None


def set_content(row: Mapping[str, Any], goal: Sequence[float] | None) -> dict[str, Any]:
    """Return what a record has of a set.

    Args:
        row: What the set has, of `row_of`.
        goal: Scores of TF-IDF when the goal was set, one for each metric; None if the set was not scored then.

    Returns:
        Rows, seeds and minutes; `metrics`, and for each of `encoder`, `std` (None for one seed) and `trivial` a list of
        scores; `dev`, the score of each seed by `dev_metric`; and `opponents`, each with `scores` and verdicts
        `over_seeds` (see `over_seeds`) and `over_rows`, the sweep's own, which counts the noise of seeds and rows.
    """
    scores = row["scores"]
    kept = ("title", "note", "train_rows", "test_rows", "num_seeds", "num_diverged", "minutes")
    means = [statistics.fmean(values) for values in zip(*(one["seeds"] for one in scores), strict=True)]
    opponents: dict[str, Any] = {}
    if goal is not None:
        position = next((place for place, one in enumerate(scores) if one["metric"] == row["metric"]), 0)
        opponents["goal"] = {"scores": list(goal), "over_rows": _against_constant(row, goal[position])}
    for name, baseline in baselines_of(row["baselines"]).items():
        found = row["baselines"][baseline]["scores"]
        opponents[name] = {
            "baseline": baseline,
            "scores": [found[one["split"]][one["metric"]] for one in scores],
            "over_rows": _sweep_verdict(row["comparisons"][baseline]),
        }
    for one in opponents.values():
        one["over_seeds"] = over_seeds(means, statistics.fmean(one["scores"]))
    return {
        **{key: row[key] for key in kept},
        "metrics": [one["metric"] for one in scores],
        "encoder": [one["mean"] for one in scores],
        "std": [one["std"] for one in scores],
        "trivial": [one["trivial"] for one in scores],
        "dev_metric": row["metric"],
        "dev": list(row["dev"]),
        "opponents": opponents,
    }


def baselines_of(baselines: Mapping[str, Any]) -> dict[str, str]:
    """Return the sweep's baseline for each opponent: of n-grams the one that is best on dev; pairs have pair features.

    >>> baselines_of({"word_ngrams": {"dev": 0.6}, "char_ngrams": {"dev": 0.7}, "majority": {"dev": 0.9}})
    {'ngrams': 'char_ngrams'}
    """
    ngrams = [name for name in baselines if name.endswith("_ngrams")]
    found = {"ngrams": max(ngrams, key=lambda name: baselines[name]["dev"])} if ngrams else {}
    return found | {name: name for name in ("pair_features",) if name in baselines}


def over_seeds(scores: Sequence[float], other: float) -> dict[str, Any]:
    """Compare the seeds' scores with one score of an opponent, on the same rows, by Student's t.

    Returns:
        `difference` of the mean from the opponent, its 95 % `interval` and the `verdict` (`above`, `below` or `not
        shown`); with one seed only the difference.

    >>> over_seeds([0.80, 0.82, 0.81], 0.75)["verdict"], over_seeds([0.80, 0.90], 0.75)["verdict"], over_seeds([1.0], 0)
    ('above', 'not shown', {'difference': 1.0})
    """
    difference = statistics.fmean(scores) - other
    if len(scores) < 2:
        return {"difference": difference}
    error = statistics.stdev(scores) / math.sqrt(len(scores))
    reach = float(stdtrit(len(scores) - 1, 1 - SIGNIFICANT / 2)) * error
    return _judged(difference, (difference - reach, difference + reach))


def _against_constant(row: Mapping[str, Any], other: float) -> dict[str, Any] | None:
    """Compare the interval of the encoder's score with a score of which no rows were kept."""
    if row["interval"] is None:
        return None
    low, high = (end - other for end in row["interval"])
    return _judged((low + high) / 2, (low, high))


def _sweep_verdict(comparison: Mapping[str, Any]) -> dict[str, Any] | None:
    interval = comparison.get("interval")
    return None if interval is None else _judged(comparison["difference"], interval)


def _judged(difference: float, interval: Sequence[float]) -> dict[str, Any]:
    low, high = interval
    verdict = "above" if low > 0 else "below" if high < 0 else "not shown"
    return {"difference": difference, "interval": [low, high], "verdict": verdict}


def kept_records(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the records in a folder by name, the fixed recipe's first."""
    paths = sorted(folder.glob(f"{NAME}*.json"), key=lambda path: (len(path.stem), path.stem))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def recipes_on_dev(records: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Compare recipes by their scores on dev, which no test score enters.

    Args:
        records: Records of one pretraining by name.

    Returns:
        `sets` that all records have, `dev` (mean over seeds by record and set), `mean` over the sets by record, and the
        `chosen` record, that with the best mean (None if they share no set).
    """
    shared = [
        name for name in next(iter(records.values()))["sets"] if all(name in one["sets"] for one in records.values())
    ]
    dev = {
        record: {name: statistics.fmean(one["sets"][name]["dev"]) for name in shared} for record, one in records.items()
    }
    mean = {record: statistics.fmean(scores.values()) for record, scores in dev.items()} if shared else {}
    chosen = max(mean, key=lambda record: mean[record], default=None)
    return {"sets": shared, "dev": dev, "mean": mean, "chosen": chosen}


def chosen_record(folder: Path = RESULTS) -> dict[str, Any]:
    """Return the record of the recipe that dev chooses, with `recipes_on_dev` as `recipes`."""
    records = kept_records(folder)
    recipes = recipes_on_dev(records)
    return {**records[recipes["chosen"]], "recipes": recipes, "all_recipes": _titles(records)}


def differences(num_recipes: int) -> tuple[str, ...]:
    """Return why the published scores do not compare directly."""
    tuning = "nothing was tuned" if num_recipes < 2 else f"{num_recipes} were compared, as said above"
    return (
        "The published scores are of GLUE's hidden test sets, from the test server. SST-2 here: GLUE's dev. STS-B and "
        "MRPC here: the test of the original release.",
        "QNLI here: 3,200 rows to train on and 400 to test on, cut by row from a share of GLUE's dev, so that many "
        "questions or sentences of the test have another row in train; published: 105,000 rows to train on. The two do "
        "not compare.",
        "The preset's objective was developed on STS-B: dev and test scores of its variants are in `notebooks/LOG.md`, "
        "so that this test is not a fresh one for it. More than a sixth of its rows share a sentence with a train row, "
        "in the original release too.",
        "The published encoders were pretrained on English Wikipedia and BooksCorpus, over a hundred times as much "
        "text, and fine-tuned for 4 epochs with the best of 5 batch sizes and 4 learning rates for each set. Here one "
        f"recipe serves all sets, and {tuning}.",
        "Paragraphs of QNLI come from Wikipedia, so the pretraining text may have some of them, without question and "
        "label.",
    )


def page(name: str, records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page of one record in Markdown.

    Args:
        name: Name of the record.
        records: It and the records of other recipes, by name.
    """
    record = records[name]
    same = {other: one for other, one in records.items() if one["pretraining"] == record["pretraining"]}
    return "\n".join(
        (
            *_introduction(record),
            *_recipes(name, same),
            *_table(record),
            "",
            *_known_sentences(record),
            "",
            "Differences of means from each opponent, with 95 % intervals:",
            "",
            *_verdicts(record),
            "",
            *(f"- {one}" for one in (*_notes(record), *differences(len(same)))),
            "",
        )
    )


def _introduction(record: Mapping[str, Any]) -> Sequence[str]:
    training = record["pretraining"]
    number = training.get("threads", 1)
    threads = "one thread" if number == 1 else f"{number} threads"
    settings = ", ".join(f"`{one}`" for one in record.get("settings", ()))
    preset = f"`experiment=wiki_mini` with {settings}" if settings else "`experiment=wiki_mini`"
    return (
        "# General text: wiki_mini on GLUE",
        "",
        f"{preset} (4 layers of 256), {training['steps']:,} "
        f"steps, {training['num_tokens'] / 1e6:.0f} million tokens of Wikipedia, "
        f"{training['processor_s'] / 3600:.2f} hours of processor time (limit "
        f"{training['processor_limit_s'] / 3600:.0f}) on {threads} of {record['device']}: held-out MLM loss "
        f"{training['val/mlm_loss']:.3f} nats. Fine-tuned by `bertline glue` with {_with_recipe(record)}. By "
        f"`benchmarks/general_text.py`, {record['date']}.",
        "",
        *(f"Compared with {title}: {said}." for name, title in _TOLD.items() if (said := goals_said(record, name))),
        "",
    )


_TOLD = {
    "goal": "TF-IDF as published when the goal was set (`glue.md`)",
    "pair_features": "what the two texts of a pair share, a baseline added later",
}


def goals_said(record: Mapping[str, Any], opponent: str) -> str:
    """Return the verdicts on the sets of the goal against an opponent; empty if it has none of them."""
    said = []
    for name in GOALS:
        found = record["sets"].get(name, {}).get("opponents", {}).get(opponent)
        if found is not None:
            verdict = found["over_rows"] or found["over_seeds"]
            known = found["over_rows"] is not None
            said.append(f"{record['sets'][name]['title']} {_verdict_words(verdict, known=known)}")
    return ", ".join(said)


def _verdict_words(verdict: Mapping[str, Any], *, known: bool) -> str:
    word = verdict["verdict"] if known else "not known, one seed"
    return f"{word} ({signed(verdict['difference'])})"


def _with_recipe(record: Mapping[str, Any]) -> str:
    changes = ", ".join(f"`{one}`" for one in record["recipe"])
    return f"its {_FIXED} but {changes}" if changes else f"its {_FIXED}"


def _titles(records: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {
        name: ", ".join(change.removeprefix("sweep.fine_tuning.") for change in one["recipe"]) or _FIXED
        for name, one in records.items()
    }


def _recipes(name: str, records: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
    found = recipes_on_dev(records)
    if len(records) < 2 or found["chosen"] is None:
        return ()
    sets = records[name]["sets"]
    titles = [f"{sets[one]['title']} {sets[one]['dev_metric']}" for one in found["sets"]]
    lines = [["recipe, scores on dev", *titles, "mean"]]
    for record, title in _titles(records).items():
        scores = [f"{found['dev'][record][one]:.3f}" for one in found["sets"]]
        lines.append([title + ", chosen" * (record == found["chosen"]), *scores, f"{found['mean'][record]:.3f}"])
    which = "the one that dev chooses" if name == found["chosen"] else "not the one that dev chooses"
    return (
        f"{len(records)} recipes were compared, on dev alone, by the mean over the sets; this page's is {which}:",
        "",
        *_markdown(lines),
        "",
    )


def _table(record: Mapping[str, Any]) -> Sequence[str]:
    lines = [["set", "metric", "wiki_mini", "trivial", *OPPONENTS.values(), *PUBLISHED, "train rows", "test rows"]]
    for name, one in record["sets"].items():
        opponents = [_joined(one["opponents"].get(opponent, {}).get("scores", [None])) for opponent in OPPONENTS]
        published = [PUBLISHED[model].get(name, "–") for model in PUBLISHED]
        rows = [f"{one[key]:,}" for key in ("train_rows", "test_rows")]
        ours = [one["title"], " / ".join(one["metrics"]), with_spreads(one), _joined(one["trivial"])]
        lines.append([*ours, *opponents, *published, *rows])
    average = [f"average of {len(record['sets'])}", "", f"{record['average']:.3f}", "", *[""] * len(OPPONENTS)]
    lines.append([*average, *(f"{PUBLISHED[model]['average']} (of all)" for model in PUBLISHED), "", ""])
    return _markdown(lines)


def with_spreads(one: Mapping[str, Any]) -> str:
    """Return the encoder's scores of a set with their standard deviations over seeds."""
    pairs = zip(one["encoder"], one["std"], strict=True)
    return " / ".join(f"{mean:.3f}" if std is None else f"{mean:.3f} ± {std:.3f}" for mean, std in pairs)


def _verdicts(record: Mapping[str, Any]) -> Sequence[str]:
    lines = [["set", "opponent", "over seeds and rows: verdict", "over seeds alone"]]
    for one in record["sets"].values():
        for name, found in one["opponents"].items():
            alone = _said(found["over_seeds"]).partition(":")[0]
            lines.append([one["title"], OPPONENTS[name], _said(found["over_rows"]), alone])
    return _markdown(lines)


def _known_sentences(record: Mapping[str, Any]) -> Sequence[str]:
    """Return lines on the test rows that share sentences with train, for the sets where they were looked for."""
    lines = []
    for name, found in record.get("unseen_rows", {}).items():
        one, ours, theirs = record["sets"][name], found["encoder"], found["pair_features"]
        leads = statistics.fmean(ours) > statistics.fmean(theirs)
        lines.append(
            f"{one['title']}: {found['rows_shared_with_train']} of {one['test_rows']:,} test rows share a sentence "
            f"with a train row. On the {found['rows']:,} that share none with train or dev, wiki_mini has "
            f"{_joined(ours)} (pretraining seed {found['pretraining_seed']}) and pair features {_joined(theirs)}"
            + ("." if leads else ": any lead over these is one of known sentences.")
        )
    return lines


def _said(verdict: Mapping[str, Any] | None) -> str:
    if verdict is None:
        return "–"
    if "interval" not in verdict:
        return f"{signed(verdict['difference'])} (one seed)"
    low, high = map(signed, verdict["interval"])
    return f"{signed(verdict['difference'])} ({low} to {high}): {verdict['verdict']}"


def _notes(record: Mapping[str, Any]) -> Sequence[str]:
    numbers = sorted({one["num_seeds"] for one in record["sets"].values()})
    several = " or ".join(map(str, numbers))
    spread = f"Mean ± standard deviation over {several} seeds" if numbers[-1] > 1 else "One seed"
    return (
        f"{spread}. `TF-IDF`: as in `glue.md`, linear models on n-grams of words (each text of a pair has its own "
        "columns), of STS-B also on the cosine of the two texts' vectors. Today's baselines: `n-grams` of words or "
        "characters, the best on dev, and `pair features`, what the two texts share and their words.",
        "A verdict counts the noise of seeds and rows: the metric of dev, for other rows of the same kind, paired by "
        "row; of TF-IDF no rows were kept, so it is the interval of the encoder's score alone. Over seeds alone: the "
        "mean of a set's metrics, on these very test rows. Of many verdicts, one in twenty is wrong by chance.",
        "TF-IDF of a pair does not see what the two texts share, except on STS-B: on QNLI it is below the most "
        "frequent label, so that to be above it says little there.",
    )


def _joined(values: Sequence[float | None]) -> str:
    return " / ".join("–" if value is None else f"{value:.3f}" for value in values)


def _markdown(lines: Sequence[Sequence[str]]) -> list[str]:
    head, *rest = lines
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rest)]


def documented() -> str:
    """Return the table of the documentation: the chosen recipe next to TF-IDF and pair features."""
    record = chosen_record()
    training, recipes = record["pretraining"], record["recipes"]
    head = "difference (95 % interval)"
    lines = [["test, mean over seeds", "wiki_mini", "TF-IDF", head, "pair features", head]]
    for one in record["sets"].values():
        cells = []
        for name in ("goal", "pair_features"):
            found = one["opponents"].get(name)
            verdict = "" if found is None else _said(found["over_rows"] or found["over_seeds"])
            cells += ["–" if found is None else _joined(found["scores"]), verdict]
        lines.append([f"{one['title']}, {' / '.join(one['metrics'])}", with_spreads(one), *cells])
    titles = record["all_recipes"]
    others = [title for name, title in titles.items() if name != recipes["chosen"]]
    return "\n".join(
        (
            *_markdown(lines),
            "",
            *_known_sentences(record),
            f"{training['processor_s'] / 3600:.2f} hours of processor time, held-out MLM loss "
            f"{training['val/mlm_loss']:.2f} nats. Recipe: `{titles[recipes['chosen']]}`"
            + (f", which dev chose over: {', '.join(others)}." if others else ", nothing tuned."),
            "`above` and `below`: beyond the noise of seeds and rows. TF-IDF: as when the goal was set, of which "
            "no rows were kept; pair features: what the two texts share, added later.",
        )
    )
