"""The benchmarks that people run by hand still run, in their smallest form and with no more than they say they need."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tiny
from bertline.examples.store import ExampleStore
from bertline.export.onnx import FP32, write_onnx
from bertline.export.views import load_view
from bertline.modeling.text_vectors import VectorSettings, write_sentence_transformer
from bertline.tokenization.storage import add_tokenizer_json
from pretraining_inputs import write_inputs
from smoke import succeeded

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# What an image with torch, Lightning, transformers and accelerate lacks: to Python, an entry None is not installed.
BARE = """
import sys
missing = "bm25s datasets dvc faiss hydra mlflow nanotoken omegaconf optuna pyarrow pydantic"
sys.modules.update(dict.fromkeys(missing.split()))
"""


@pytest.fixture(autouse=True)
def modules_of_benchmarks(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def bare(tmp_path) -> dict[str, str]:
    """The environment of a Python that finds what a GPU image has, and neither bertline nor its other needs."""
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BARE, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}


def call(environment: dict[str, str], script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, BENCHMARKS / script, *arguments], env=environment, capture_output=True, text=True, timeout=600
    )


def figures_of(done: subprocess.CompletedProcess[str]) -> dict:
    return json.loads(succeeded(done).stdout.splitlines()[-1])


def test_pretraining_step_needs_no_more_than_a_gpu_image_and_compares_three_sides(bare, tmp_path):
    small = "--model tiny --vocab-size 64 --seq-len 16 --batch-size 4 --steps 2 --rounds 2 --threads 1 --workers 1"
    options = [*small.split(), "--device", "cpu", "--set", "runtime.compile=off", "--keep", str(tmp_path / "kept")]
    done = call(bare, "pretraining_step.py", *options)
    figures = figures_of(done)

    assert figures["left_out"] == {}
    assert (figures["model"], figures["seq_len"], figures["vocab_size"]) == ("tiny", 16, 64)
    assert figures["environment"] == "same"
    variables = figures["environment_variables"]
    assert variables["peers"] == variables["bertline"] and "GLIBC_TUNABLES" in variables["peers"]
    ours, plain, tuned = (figures[f"tokens_per_s{side}"] for side in ("", "_plain", "_tuned"))
    assert figures["ratio_to_plain"] == pytest.approx(ours / plain, rel=0.01)
    assert figures["ratio_to_tuned"] == pytest.approx(ours / tuned, rel=0.01)
    flops = figures["flops_per_token"]
    assert figures["matmul_fraction"] == pytest.approx(ours * flops / figures["matmul_flops_per_s"], abs=1e-3)
    assert figures["peak_memory_bytes"] > 2**27
    table = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.endswith("GiB")}
    assert table["bertline"][0] == f"{ours:,}" and table["plain"][1] == f"{ours / plain:.2f}"

    (kept,) = (tmp_path / "kept").iterdir()
    record = json.loads(kept.read_text())
    assert kept.name.startswith("pretraining_step_") and "_tiny_16_vocab-size-64_batch-size-4" in kept.name
    assert {"commit", "date", "versions", "device", "arguments", *figures} <= record.keys()
    assert {side: len(rounds) for side, rounds in record["rounds"].items()} == {
        "matmul": 2, "bertline": 2, "plain": 2, "tuned": 2,
    }  # fmt: skip


@pytest.mark.parametrize("source", ["mixed", "examples"])
def test_real_lengths_count_only_real_tokens(tmp_path, source):
    from made_up_examples import sequence_lengths, write_made_up_examples

    write_inputs(tmp_path / "source", lengths=(16,), num_train=300)
    choice = "mixed" if source == "mixed" else str(tmp_path / "source" / "examples")
    lengths = write_made_up_examples(tmp_path, vocab_size=64, seq_len=16, lengths=choice)
    store = ExampleStore.open(tmp_path / "examples", "train", 16)
    assert store.num_tokens == lengths.sum() and len(store) == len(lengths)
    padded = store.padded(np.arange(50))
    assert (padded.lengths == lengths[:50]).all() and (padded.first_segment_lengths < padded.lengths - 1).all()
    assert lengths.min() >= 8 and lengths.max() == 16
    if source == "mixed":
        assert (lengths == 16).mean() == pytest.approx(0.9 + 0.1 / 9, abs=0.02)
    else:  # as many of each length as in the artifact, from 8 to 16
        assert np.bincount(lengths, minlength=17)[8:].min() > 0.05 * len(lengths)
    assert (sequence_lengths("full", 3, 16) == 16).all()


def learning_options(tmp_path: Path, *more: str) -> list[str]:
    """The smallest form: one seed, data that are there."""
    small = "--model tiny --length 16 --batch-size 16 --seeds 1 --threads 1 --workers 0 --device cpu"
    places = {"--examples": "examples", "--tokenizer": "tokenizer", "--work": "work"}
    options = [part for name, folder in places.items() for part in (name, str(tmp_path / folder))]
    return [*small.split(), *options, "--set", "runtime.compile=off", *more]


def test_sentences_compares_its_systems_on_texts_of_law(tmp_path, monkeypatch, capsys):
    import sentences

    # 40 times as slow as the others.
    monkeypatch.setattr(sentences.pysbd, "Segmenter", lambda **_: SimpleNamespace(segment=str.splitlines))
    monkeypatch.setattr(sys, "argv", ["sentences.py", "--data", str(tmp_path)])
    sentences.main()
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["f1"]
    for name in ("law_drafts", "law_held_out"):
        assert figures[name]["learned"] > figures[name]["punkt"]
        assert figures[f"{name}/bare_abbreviations"]["learned"] < 0.01
        assert {"learned_from_nothing", "punkt_untrained", "pysbd"} <= figures[name].keys()


def test_learning_trains_both_sides_to_one_measure_and_is_resumed(bare, tmp_path):
    write_inputs(tmp_path, num_train=400, num_validation=100)
    grid = ["--peer-optimizers", "adamw_short", "muon_short", "--rates", "1", "--beta2", "0.98"]
    keep = ["--keep", str(tmp_path / "kept"), "--commit", "abc"]
    options = learning_options(tmp_path, "--steps", "150", *grid, *keep)
    figures = figures_of(call(bare, "learning.py", *options))

    (seed,) = figures["seeds"]
    names = ("loss_ours", "loss_ours_same_optimizer", "loss_peer_equal_steps", "loss_peer_equal_time")
    assert {name: figures[name] for name in names} == pytest.approx({name: seed[name] for name in names}, abs=1e-3)
    # The made-up tokens follow from one another: both sides learn that, far below the loss of a uniform guess.
    ours, ours_same, peer_steps, peer_time = (figures[name] for name in names)
    assert max(ours, ours_same, peer_steps) < math.log(61) - 0.2
    assert figures["same_optimizer_difference"] == pytest.approx(ours_same - peer_steps, abs=1e-3)
    assert figures["equal_time_difference"] == pytest.approx(ours - peer_time, abs=1e-3)
    assert figures["same_optimizer_standard_error"] is None  # of one seed
    assert seed["steps_peer_equal_time"] >= 1

    assert len(figures["grid"]) == 2 and {cell["optimizer"].split()[0] for cell in figures["grid"]} == {"AdamW", "Muon"}
    best = min(figures["grid"], key=lambda cell: cell["dev_loss"])
    peer, chosen = figures["peer"], best["optimizer"]
    assert peer.startswith("Trainer, ") and "SDPA, not compiled" in peer and peer.endswith(chosen)
    assert figures["ours_same_optimizer"] == f"bertline, {chosen}"

    (kept,) = (tmp_path / "kept").iterdir()
    record = json.loads(kept.read_text())
    assert kept.name.startswith("learning_") and "_tiny_16_batch-size-16_steps-150_seeds-1" in kept.name
    assert record == {**record, **figures, "arguments": record["arguments"]}
    assert (record["commit"], record["arguments"]["steps"], record["data"]["train"]["examples"]) == ("abc", 150, 400)
    assert {"date", "versions", "device", "environment"} <= record.keys()
    assert str(tmp_path) not in kept.read_text()

    # What is finished is not trained again; what is missing is.
    # The lost one is ours with the peer's optimizer: the number of steps of others depends on how long theirs took.
    trainings = {path: json.loads(path.read_text())["training"] for path in (tmp_path / "work" / "trainings").iterdir()}
    ours = {path: training for path, training in trainings.items() if training["side"] == "bertline"}
    (lost,) = (path for path, training in ours.items() if training["optimizer"]["lr"] is not None)
    lost.unlink()
    again = succeeded(call(bare, "learning.py", *options)).stdout.splitlines()
    lines = [line for line in again if " steps in " in line]
    assert sum("(from the work folder)" not in line for line in lines) == 1
    assert json.loads(again[-1])["grid"] == figures["grid"]


@pytest.mark.parametrize(
    ("best", "tried"),
    [(2.0, [1, 2, 4]), (0.4, [0.25, 0.5, 1, 2, 4]), (100.0, [1, 2, 4, 8, 16])],
    ids=["inside", "below", "above"],
)
def test_the_grid_goes_further_while_its_best_rate_is_the_outermost(best, tried):
    from learning_runs import Cell, Optimizer, cells_of_kind

    def at(rate, beta2):
        loss = abs(math.log(rate / best)) + (0.1 if beta2 == 0.98 else 0)
        return Cell(optimizer=Optimizer(preset="muon_short", lr=rate, beta2=beta2), num_steps=9, loss=loss)

    cells = cells_of_kind(at, [1, 2, 4], [0.98, 0.999])
    of_first = [cell.optimizer.lr for cell in cells if cell.optimizer.beta2 == 0.98]
    assert sorted(of_first) == tried
    (last,) = [cell for cell in cells if cell.optimizer.beta2 == 0.999]
    assert last.loss == min(cell.loss for cell in cells)


@pytest.mark.parametrize("prepared", [False, True], ids=["by itself", "prepared as the Trainer does"])
def test_the_muon_of_the_trainer_takes_the_steps_that_bertline_takes(prepared):
    """Given equal weights and gradients and a schedule, to the rounding of bf16 products."""
    import accelerate
    import torch
    from bare_configuration import section
    from hugging_face_peer import MuonAndAdamW

    import tiny
    from bertline.modeling.bert import BertForPreTraining
    from bertline.modeling.huggingface import to_disk
    from bertline.modeling.initialization import initialize
    from bertline.training.groupwise import set_learning_rate
    from bertline.training.optimizers import OptimizerConfig

    config = section(OptimizerConfig, "optimizer/muon_short")
    model = BertForPreTraining(tiny.model_config(), vocab_size=20, pad_token_id=0)
    initialize(model, tiny.model_config(), seed=0)
    named = to_disk(dict(model.named_parameters()))  # the names of transformers
    weights = {name: torch.nn.Parameter(value.detach().clone()) for name, value in named.items()}
    peer = SimpleNamespace(named_parameters=weights.items)
    ours, theirs = config.build(model, precision="bf16"), MuonAndAdamW(peer, config)
    schedule = torch.optim.lr_scheduler.LambdaLR(theirs, lambda step: 1 / (1 + step))
    if prepared:
        theirs = accelerate.Accelerator(cpu=True).prepare(theirs)
    before = {name: value.detach().clone() for name, value in weights.items()}
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        for weight in model.parameters():
            weight.grad = torch.randn(weight.shape, generator=generator)
        gradients = to_disk({name: weight.grad for name, weight in model.named_parameters()})
        for name, weight in weights.items():
            weight.grad = gradients[name].clone()
        set_learning_rate(ours, config.lr / (1 + step))
        ours.step()
        theirs.step()
        schedule.step()
    for name, expected in to_disk(dict(model.named_parameters())).items():
        moved = (expected - before[name]).norm()
        assert moved > 0
        assert (weights[name] - expected).norm() < 0.02 * moved, name


def test_where_bertline_itself_fails_the_benchmark_fails_with_the_reason(bare):
    small = "--model tiny --vocab-size 64 --seq-len 16 --batch-size 4 --threads 1 --workers 0 --device cpu"
    done = call(bare, "pretraining_step.py", *small.split(), "--arms", "bertline", "--set", "optimizer.kind=sgd")
    assert done.returncode == 1
    assert "bertline failed" in done.stderr and "sgd" in done.stderr


def sentence_encoder(folder: Path) -> Path:
    words = ("alpha", "beta", "gamma", "delta", "epsilon")
    model = tiny.write_encoder(folder, words=words, max_position_embeddings=256)
    add_tokenizer_json(model)
    vectors = VectorSettings(pooling="cls", similarity="cosine", prompts={})
    write_sentence_transformer(model, vectors, max_length=256)
    return model


def test_few_labels_compares_on_the_same_rows_keeps_and_is_resumed(tmp_path: Path) -> None:
    model = sentence_encoder(tmp_path / "model")
    rows = [f"{'ABBR:x alpha' if place % 2 else 'NUM:y beta'} {chr(97 + place)}" for place in range(26)]
    for split, of_split in (("train", rows[:16]), ("test", rows[16:])):
        (tmp_path / f"data/trec/{split}.txt").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"data/trec/{split}.txt").write_text("\n".join(of_split), encoding="latin-1")
    small = "--sets trec --rows 6 --draws 0 --commit 0 --more seeds=1 sweep.methods=[frozen]"
    places = ["--data", str(tmp_path / "data"), "--encoder", str(model), "--keep", str(tmp_path)]
    done = call(dict(os.environ), "few_labels.py", *places, *small.split())
    figures, table = figures_of(done), json.loads((tmp_path / "few_labels.json").read_text())["settings"]["trec 6 0"]
    assert figures["left_out"] == ([] if "setfit" in table else ["setfit"])
    assert table.keys() - {"setfit"} == {"bertline", "frozen", "tfidf"}
    for result in table.values():
        assert (result["num_train"], result["num_test"]) == (12, 10)
        assert result["wall_s"] > 0 < result["processor_s"]
    assert table["tfidf"]["score"] == 1
    assert (
        table["bertline"]["log"] and table["bertline"]["baselines"].keys() == table["bertline"]["baselines_dev"].keys()
    )
    again = call(dict(os.environ), "few_labels.py", *places, *small.split())
    assert figures_of(again) == figures and len(again.stdout.splitlines()) < len(done.stdout.splitlines())


def test_serving_compares_the_exported_files_with_peers_in_another_python(tmp_path: Path) -> None:
    model = sentence_encoder(tmp_path / "model")
    write_onnx(load_view(model, "BertModel"), model / FP32)
    peers = tmp_path / "python"  # as if sentence-transformers were what our own file is
    peers.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && exec echo {{}}\nexec {sys.executable} "$1" onnx "$3" "$4" "$5" "$6"\n'
    )
    peers.chmod(0o755)
    options = ["--texts", "8", "--rounds", "1", "--keep", str(tmp_path)]
    done = call(dict(os.environ), "serving.py", "--peers", str(peers), "--model", str(model), *options)
    assert done.returncode in (0, 1), done.stderr  # by what is faster
    figures = json.loads(done.stdout.splitlines()[-1])
    assert set(figures["ratio"]) == {"short_single", "short_many", "long_single", "long_many", "mean"}
    assert min(figures["cosine"].values()) > 0.9
    assert figures["num_texts"] == {"short": 8, "long": 2}
    assert json.loads((tmp_path / "serving.json").read_text())["ms_per_text"] == figures["ms_per_text"]
