"""Notes on a result: rows that were cut, and lengths that an encoder cannot read."""

from __future__ import annotations

import json

from bertline.sweep.run import run_sweep


def test_rows_that_are_cut_are_counted_by_arm_and_split_and_said(inputs, input_folder, tmp_path, capsys):
    # The task's texts have 2 to 8 words; the reference encoder has positions for six of them and its special tokens.
    reference = inputs.write_encoder(tmp_path / "reference", max_position_embeddings=8)
    job = inputs.sweep_job(
        input_folder,
        tmp_path / "run",
        sweep=inputs.sweep(
            num_trials=1,
            num_seeds=1,
            random_weights_baseline="never",
            encoders=(str(reference),),
            fine_tuning=inputs.fine_tuning(num_epochs=1),
        ),
        task=inputs.task(label_efficiency_rows=()),
    )
    run_sweep(job)
    result = json.loads((job.run_folder / "result" / "result.json").read_text())
    assert result["arms"]["encoder"]["cut_rows"] == {"train": 0, "dev": 0, "test": 0}
    expected = {}
    for seed, (split, num_rows) in enumerate(inputs.NUM_ROWS.items()):
        texts = inputs.learnable_rows(num_rows, seed=seed).texts[: result["rows"][split]]
        expected[split] = sum(len(text.split()) > 6 for text in texts)
    assert result["arms"]["encoder_2"]["cut_rows"] == expected
    assert min(expected.values()) > 0
    counts = ", ".join(f"{expected[split]} of {result['rows'][split]} {split} rows" for split in expected)
    name = "/".join(reference.parts[-2:])
    said = capsys.readouterr().out
    for sentence in (
        f"For {name} max_length is 8 and not 16: it has positions for no more tokens.",
        f"Longer than the 8 tokens that it has positions for, and so cut for {name}: {counts}.",
    ):
        assert sentence in result["note"]
        assert f"halves: {sentence}\n" in said
    assert str(tmp_path) not in result["note"]
