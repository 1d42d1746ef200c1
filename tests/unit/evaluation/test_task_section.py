import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from bertline.evaluation.facts import PipelineFolders, TaskFacts, read_facts
from bertline.evaluation.html import escape
from bertline.evaluation.overlap import Overlap
from bertline.evaluation.pretraining_section import sample_documents
from bertline.evaluation.task_charts import colours, task_charts, varied
from bertline.evaluation.task_section import task_section
from bertline.tasks.stored_rows import COLLECTION, Documents, write_rows
from evaluation_inputs import HOSTILE, KINDS, make_result, rows_of_kind


@pytest.fixture(autouse=True)
def collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a search task, in which its report looks up the right documents."""
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path, COLLECTION, Documents(["d1", "d7"], ["", ""], ["Shock waves on wings.", "Other."]))


def facts(name: str, **changes: Any) -> TaskFacts:
    return TaskFacts(name=name, manifest={}, result={**make_result(name), **changes}, calibration={}, folder=Path())


def page(task: TaskFacts, overlaps: dict[str, Overlap] | None = None, correct: list[float] | None = None) -> str:
    right = {} if correct is None else {"test": correct}
    return task_section(task, task_charts(task), overlaps or {}, right).replace("\u202f", " ")


def words(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text))


def overlap(*touched: int, rows: int = 60, flagged: bool = False) -> Overlap:
    share = len(touched) / rows
    return Overlap(
        ngram=8,
        rows=rows,
        rows_too_short=2,
        share_of_rows=share,
        share_of_ngrams=share / 2,
        flagged=flagged,
        touched=touched,
    )


def test_only_hyperparameters_that_took_several_numbers_are_drawn() -> None:
    assert varied(facts("library")) == ["batch_size", "learning_rate"]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_names_its_score_its_baselines_and_what_was_wrong(name: str) -> None:
    task = facts(name)
    said = page(task)
    for baseline in task.result["baselines"].values():
        assert said.count(baseline["title"]) >= 3  # sentence, comparison, chart
    assert "Where it is sure and wrong" in said
    assert "general-encoder" in said
    assert "/models" not in said
    assert HOSTILE not in said


def test_a_difference_within_the_spread_is_not_called_a_win() -> None:
    assert "Pretraining helps here" in page(facts("library"))
    said = words(page(facts("library", comparison=noise(0.01, 0.4))))
    assert "Pretraining makes no clear difference here" in said
    assert "+0.010 (95 % interval −0.030 to +0.050)" in said
    assert "The smallest difference this sweep could have seen is 0.070." in said


def test_random_weights_that_are_better_are_said_to_be() -> None:
    said = words(page(facts("library", comparison=noise(-0.101, 0.001))))
    assert "Pretraining harms here: random weights are better: the difference of the means is −0.101" in said
    assert "no clear difference here" not in said


def test_the_table_says_which_opponents_are_better() -> None:
    task = facts("library")
    task.result["comparisons_by_split"] = {
        "test": {"random_weights": noise(-0.1, 0.001), "majority": noise(0.1, 0.001), "tfidf": noise(0.01, 0.4)}
    }
    rows = re.findall(r"(better than the encoder|beaten|no clear difference)</td>", page(task))
    assert sorted(rows) == ["beaten", "better than the encoder", "no clear difference"]


def noise(difference: float, p_value: float) -> dict[str, Any]:
    verdict = "not shown" if p_value >= 0.05 else "better" if difference > 0 else "worse"
    return {
        "difference": difference,
        "interval": [difference - 0.04, difference + 0.04],
        "p_value": p_value,
        "smallest_visible": 0.07,
        "verdict": verdict,
    }


@pytest.mark.parametrize(
    ("difference", "p_value", "said"),
    [
        (0.05, 0.004, "Your own encoder beats models/general-encoder on your task: by +0.050"),
        (-0.05, 0.004, "Your own encoder is worse than models/general-encoder on your task: by −0.050"),
        (0.005, 0.4, "Whether your own encoder or models/general-encoder is better on your task is not shown"),
    ],
)
def test_whether_the_own_encoder_beats_a_general_one_is_answered(difference: float, p_value: float, said: str) -> None:
    task = facts("library")
    task.result["comparisons"]["reference_encoder"] = noise(difference, p_value)
    assert said in words(page(task))


def test_the_first_sentence_about_a_task_says_whether_the_encoder_wins() -> None:
    task = facts("library")
    said = words(page(task))
    assert said.index(task.result["conclusion"]["sentence"]) < said.index("it reaches accuracy")


def test_one_seed_proves_nothing() -> None:
    task = facts("library")
    for arm in task.result["arms"].values():
        arm["seeds"] = arm["seeds"][:1]
    task.result["comparison"] = {"difference": 0.14}
    task.result["comparisons"] = {name: {"difference": 0.1} for name in task.result["comparisons"]}
    task.result["comparisons_by_split"] = {"test": task.result["comparisons"]}
    said = words(page(task))
    assert "Whether pretraining helps here is not shown" in said
    assert "Whether your own encoder or models/general-encoder is better on your task is not shown" in said
    assert "+0.100 not known" in said  # the empty columns are left out
    assert not any(word in said for word in ("beaten", "beats", "helps here:", "no clear difference"))


def test_a_start_other_than_the_lines_own_is_named() -> None:
    task = facts("library", start="ada/encoder")
    task.result["arms"]["encoder"]["title"] = "ada/encoder"
    assert "On library ada/encoder reaches accuracy" in page(task)
    assert "nothing is said of pretraining" in page(facts("library", start="random"))


def test_what_dev_chose_for_everything_measured_against_is_shown() -> None:
    task = facts("library")
    assert "Chosen on dev: TF" not in words(page(task))
    task.result["baselines"]["tfidf"]["settings"] = {"model": "linear_svm", "c": 0.1}
    assert "Chosen on dev: TF-IDF, logistic regression (model linear svm, c 0.1)." in words(page(task))


def test_what_explains_the_differences_between_trials_is_shown() -> None:
    task = facts("library")
    assert "explains" not in words(page(task))
    task.result["importances"] = {"learning_rate": 0.8, "batch_size": 0.2}
    assert "differences between trials: learning rate 80.0 % and batch size 20.0 %" in words(page(task))


def test_a_search_shows_the_encoder_combined_with_bm25() -> None:
    task = facts(next(name for name, kind in KINDS.items() if kind == "retrieval"))
    said = words(page(task))
    assert "encoder and BM25 combined" in said
    assert "Chosen on dev: encoder and BM25 combined (k 20, weight 0.25)." in said
    assert "right Waves on wings." in said


def test_failed_runs_are_said_and_only_then() -> None:
    task = facts("library")
    assert "2 of 5 seeds of the same encoder from random weights" in page(task)
    task.result["arms"]["random_weights"]["num_degenerate"] = 0
    assert "Failed runs" not in page(task)


def test_diverged_seeds_stand_beside_the_scores_that_lack_them() -> None:
    task = facts("library")
    arm = task.result["arms"]["encoder"]
    arm["seeds"] = arm["seeds"][:3]
    arm |= {"num_diverged": 2, "num_degenerate": 3}
    arm["candidates"][1] |= {"dev": [], "dev_mean": None, "num_diverged": 5}
    said = words(page(task))
    assert "over 3 seeds; 2 more diverged and have no score" in said
    assert "3 of 5 seeds of pretrained encoder (2 diverged)" in said
    assert "those that diverged have no score to count" in said
    assert "0.370 to 0.470 3 (2 more diverged)" in said
    assert "batch size 32 and learning rate 0.0001 – 0 (5 more diverged)" in said


def test_every_test_has_its_own_comparisons() -> None:
    task = facts("topics")
    mismatched = {
        "majority": noise(0.011, 0.5),
    }
    task.result["comparisons_by_split"] = {"test": task.result["comparisons"], "test_mismatched": mismatched}
    said = words(page(task))
    assert "On the same 300 rows of test; the noise of seeds" in said
    own = said.split("On the same 300 rows of test; the noise of seeds")[1]
    assert "test (mismatched) measured against" in own
    assert "most frequent label +0.011 −0.029 to +0.051 0.070 no clear difference" in own
    assert "On the same 300 rows of test (mismatched); the noise of seeds" in own


def test_an_arm_that_was_left_out_is_missing_without_harm() -> None:
    task = facts("library", comparison=None, label_efficiency=[])
    del task.result["arms"]["random_weights"], task.result["comparisons"]["random_weights"]
    task.result["note"] = "Every run of the encoder from random weights diverged or failed, so it is left out."
    said = page(task)
    assert "diverged or failed, so it is left out" in said
    assert "was not compared with the same encoder from random weights" in said


def test_a_trial_that_failed_before_its_first_score_is_left_out() -> None:
    task = facts("library")
    for arm in task.result["arms"].values():
        for trial in arm["trials"]:
            trial["dev"] = None
    assert varied(task) == []
    assert "What the sweep tried" in page(task)


def test_all_splits_have_their_scores_with_the_chosen_metric_first() -> None:
    said = words(page(facts("topics")))
    assert "dev, 300 rows accuracy macro F1 seeds" in said
    assert "test mismatched, 300 rows accuracy macro F1 95 % interval of accuracy seeds" in said
    assert "0.420 ± 0.016 0.420 ± 0.016 0.370 to 0.470 5" in said
    assert "test (mismatched)" in words(page(facts("topics"), {"test_mismatched": overlap()}))


def test_the_candidates_stand_beside_the_chosen_configuration() -> None:
    said = words(page(facts("search")))
    assert "batch size 16 and learning rate 0.0003 0.420 ± 0.010 5 chosen" in said
    assert "batch size 32 and learning rate 0.0001 0.400 ± 0.010 5" in said
    assert "tuned on a tenth of train" in said  # the sweep's note


def test_overlap_is_flagged_beside_the_score_and_rows_without_it_are_scored_apart() -> None:
    correct = [1.0] * 12 + [0.0] * 8 + [1.0] * 20 + [0.0] * 20
    flagged = page(facts("library"), {"test": overlap(*range(20), flagged=True)}, correct)
    said = words(flagged)
    assert "may have been read in pretraining" in said
    assert "20 of 60 rows of test (33.3 %) share a run of 8 words" in said
    assert "gets 60.0 % of these rows right and 50.0 % of the others" in said
    assert '<p class="verdict unsure">Part of this test' in flagged
    few = words(page(facts("library"), {"test": overlap(3)}, correct))
    assert "may have been read" not in few
    assert "of the others" not in few
    assert "none of the 60 rows of test" in words(page(facts("library"), {"test": overlap()}))


def test_a_tagged_error_shows_both_taggings_word_by_word() -> None:
    said = page(facts("names"))
    assert '<mark class="right">Lovelace</mark>' in said
    assert '<span class="missed">Lovelace</span>' in said
    assert '<mark class="wrong">London<small>person</small></mark>' in said
    assert escape(HOSTILE.split()[0]) in said


_EXAMPLES = {
    "library": ("which of the 3 labels (numpy, torch, sympy)", "label numpy"),
    "topics": ("Classification", "label numpy"),
    "alike": ("Regression", "number 0.0"),
    "names": ("entities of the 2 types (person, place)", "words the kernel of a frame is B-person"),
    "answers": ("Question answering", "answers kernel"),
    "search": ("Retrieval", "right document Shock waves on wings."),
    "order": ("Re-ranking", "candidates a text"),
    "sums": ("Extractive summarisation", "… (6 sentences)"),
    "blanks": ("Fill-mask", "text the kernel of a frame is"),
}


@pytest.mark.parametrize("name", _EXAMPLES)
def test_a_task_is_introduced_by_a_sentence_and_an_example_row(name: str) -> None:
    about, example = _EXAMPLES[name]
    write_rows(Path(), "train", rows_of_kind(name))
    said = words(page(facts(name)))
    introduced = said.split("An example, the first row of train")[0]
    assert about in introduced and example in introduced


def test_a_default_task_is_introduced_by_what_it_asks_for(pipeline: PipelineFolders) -> None:
    tasks = {**pipeline.params["tasks"], "library": {"max_length": 32, "source": {"kind": "docs_library"}}}
    read = read_facts(dataclasses.replace(pipeline, params={**pipeline.params, "tasks": tasks}), "title")
    assert "Which library does a passage of documentation describe?" in page(read.tasks[0])
    assert "Which library does" not in page(read.tasks[1])


def test_without_rows_there_is_no_example() -> None:
    assert "An example" not in page(facts("library"))


def test_a_logarithmic_search_has_a_logarithmic_axis_however_narrow() -> None:
    space = {"learning_rate": {"kind": "log_uniform", "low": 1e-4, "high": 1e-3}}
    task = facts("library")
    for arm in task.result["arms"].values():
        for place, trial in enumerate(arm["trials"]):
            trial["params"]["learning_rate"] = 1.1e-4 * 1.5**place
    linear, log = task_charts(task), task_charts(dataclasses.replace(task, space=space))
    ticks = [
        re.findall(r'text-anchor="middle">([0-9.e-]+)<', of["library_trials_learning_rate"]) for of in (linear, log)
    ]
    assert ticks == [["1e-4", "1.5e-4", "2e-4", "2.5e-4"], ["1e-4", "2e-4", "3e-4"]]


def test_each_baseline_of_a_task_has_a_colour_of_its_own() -> None:
    task = facts("library", baselines={f"baseline {n}": {} for n in range(6)})
    assert len({css for name, css in colours(task).items() if name.startswith("baseline")}) == 6


def test_scores_on_touched_rows_name_what_they_measure() -> None:
    correct = [0.5] * 20 + [0.75] * 40
    said = words(page(facts("names"), {"test": overlap(*range(20))}, correct))
    assert "For the best model, the share of words with the right tag is 0.500 on these rows and 0.750" in said
    said = words(page(facts("search"), {"test": overlap(*range(20))}, correct))
    assert "For the best model, nDCG@10 is 0.500 on these rows" in said


def test_a_wrong_answer_stands_in_its_context() -> None:
    said = page(facts("answers"))
    assert '<mark class="right">the northern sea</mark>' in said
    assert '<mark class="wrong">the hills</mark>' in said
    assert words(said).count("Some sentences before.") < 20


def test_answers_that_are_not_found_in_the_context_do_not_hide_it() -> None:
    task = facts("answers")
    task.result["examples"]["confident_errors"][0] |= {"gold": "", "predicted": "nowhere"}
    said = words(page(task))
    assert "is no answer, answered nowhere" in said
    assert "Some sentences before." in said


def test_what_dev_decided_is_said() -> None:
    task = TaskFacts(
        name="answers",
        manifest={},
        result=make_result("answers"),
        calibration={"no_answer_threshold": -1.25},
        folder=Path(),
    )
    assert "no answer where &#x27;none&#x27; scores more than -1.25" in page(task)


def test_reranking_is_shown_before_and_after() -> None:
    assert "MAP 0.200 0.420 +0.220" in words(page(facts("order")))


def test_blanks_that_were_filled_wrong_are_named() -> None:
    assert "filled in name for kernel, the for a (90 % sure)" in words(page(facts("blanks")))


def test_perplexity_is_given_beside_its_logarithm() -> None:
    assert "negative log perplexity −2.500 ± 0.016" in words(page(facts("blanks")))
    assert "a perplexity of 12.2" in page(facts("blanks"))


def test_scores_by_type_and_by_label_are_tables() -> None:
    assert "person" in words(page(facts("names"))).split("By type")[1]
    assert "numpy 0.400 0.500" in words(page(facts("topics"))).split("By label")[1]


def test_a_label_without_rows_has_no_scores() -> None:
    by_label = {"a": {"f1": 0.5, "rows": 2}, "b": {"f1": 0.0, "rows": 0}, "c": {"f1": 0.0, "rows": 3}}
    said = words(page(facts("topics", details={"by_label": by_label})))
    assert "a 0.500 2 b – 0 c 0.000 3" in said


def test_of_very_many_labels_only_the_worst_confusions_are_shown() -> None:
    labels = [f"label {n}" for n in range(60)]
    matrix = [[0] * 60 for _ in labels]
    matrix[3][7], matrix[3][3], matrix[5][1] = 9, 50, 2
    said = words(page(facts("library", labels=labels, confusion_matrix=matrix)))
    assert "label 3 label 7 9 label 5 label 1 2" in said
    assert "label 40" not in said


def test_details_that_no_one_foresaw_are_shown_plainly() -> None:
    said = words(
        page(facts("library", details={"new_figure": 0.25, "by_length": {"short": 0.5}}, confusion_matrix=None))
    )
    assert "new figure 0.250" in said
    assert "by length, short 0.500" in said


def test_sample_documents_are_held_out_and_the_same_each_time(pipeline: PipelineFolders, tmp_path: Path) -> None:
    first = [document.id for document in sample_documents(pipeline, 2)]
    assert first == [document.id for document in sample_documents(pipeline, 2)]
    assert len(first) == 2
    assert all(name.startswith("validation.") for name in first)
