"""Notes on a result: rows that were cut, and lengths that an encoder cannot read."""

from __future__ import annotations

import json

import pytest

import finished_tasks
import tiny
from bertline.foundation.files import write_json
from bertline.foundation.manifests import write_manifest
from bertline.sweep.bench import planned
from bertline.sweep.repetitions import OUTCOME, READING, TEST, Repetition
from bertline.sweep.run import notes_after, run_sweep
from bertline.tasks.stored_rows import COLLECTION, FORMAT_VERSION, KIND, write_rows


@pytest.mark.parametrize(("chosen", "is_said"), [(3.0, False), (6.0, False), (12.0, True)])
def test_random_weights_that_choose_the_most_epochs_offered_might_want_more(
    inputs, input_folder, tmp_path, chosen, is_said
):
    plan = planned(inputs.sweep_job(input_folder, tmp_path / "run"))  # 6 epochs, and 0.5, 1 and 2 times as many
    seed = Repetition("random_weights", {"num_epochs": chosen}, "seed", 0, 0, 0, None)
    for path in (seed.folder(plan.job) / OUTCOME, seed.folder(plan.job) / TEST / READING):
        write_json(path, {"cut_rows": {}})
    found = notes_after(plan, {"random_weights": [seed]})
    assert any("the most epochs that it was offered (12)" in sentence for sentence in found) == is_said


@pytest.mark.parametrize("positions", [24, 16])
def test_of_a_search_the_documents_are_counted_too(inputs, tmp_path, positions):
    config, _, rows, _ = finished_tasks.KINDS["retrieval"]()
    task = tmp_path / "task"
    task.mkdir()
    for split in ("train", "dev", "test"):
        write_rows(task, split, rows)
    write_rows(task, COLLECTION, finished_tasks.collection())
    counts = dict.fromkeys(("train", "dev", "test"), len(rows))
    write_manifest(task, kind=KIND, format_version=FORMAT_VERSION, content={"labels": [], "counts": counts})
    tiny.write_encoder(tmp_path / "encoder", words=finished_tasks.TOKENS, max_position_embeddings=positions // 2)
    job = inputs.sweep_job(
        tmp_path,
        tmp_path / "run",
        task=config,
        sweep=inputs.sweep(space={}, num_seeds=1, random_weights_baseline="never"),
    )
    run_sweep(job)
    result = json.loads((job.run_folder / "result" / "result.json").read_text())
    cut = result["arms"]["encoder"]["cut_rows"]
    assert cut.keys() == {"train", "dev", "test", "documents"}
    assert (f"{cut['documents']} documents" in result["note"]) == (cut["documents"] > 0)
    assert ("query_max_length is 8 and not 12" in result["note"]) == (positions == 16)
