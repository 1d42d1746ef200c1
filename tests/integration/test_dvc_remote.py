"""A DVC remote, in a folder and over S3's protocol: a second clone reproduces the whole pipeline without computing."""

from __future__ import annotations

import shutil
from pathlib import Path

import servers
from smoke import Run

PAGE = Path(__file__).resolve().parents[2] / "docs/howto/share.md"
# These two run in every `dvc repro`, and compute nothing: they write the configuration and the versions for DVC to see.
LIGHT = ("configure", "versions")


def of(run: Run, folder: Path, *command: str, **environment: str) -> str:
    """What a command printed; it must not fail."""
    done = run(folder, *command, **environment)
    assert done.returncode == 0, f"$ {' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def of_page(run: Run, folder: Path, command: str, replaced: str = "", by: str = "", **environment: str) -> str:
    """Run a command of the page on sharing, with the reader's own address filled in."""
    assert f"{command}\n" in PAGE.read_text() or f"{command} " in PAGE.read_text(), command
    return of(run, folder, *command.replace(replaced, by).split(), **environment)


def pushed(run: Run, pipeline: Path, url: str, **environment: str) -> None:
    """What the page on sharing says: a remote, the results in git, the data in the remote."""
    if url.startswith("s3:"):
        of_page(run, pipeline, "dvc remote add --default store s3://BUCKET/bertline", "s3://BUCKET/bertline", url)
        host, address = "https://s3.example.org", environment.pop("AWS_ENDPOINT_URL")
        of_page(run, pipeline, f"dvc remote modify store endpointurl {host}", host, address)
    else:
        of_page(run, pipeline, "dvc remote add --default store /path/to/store", "/path/to/store", url)
    of_page(run, pipeline, "dvc push --run-cache", **environment)
    assert "runs of stages" in of_page(run, pipeline, "bertline share", **environment)
    of(run, pipeline, "git", "add", "--all")  # the tree of the tests may have files that are not committed
    of(run, pipeline, "git", "add", "--force", "conf/local")
    identity = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    of(run, pipeline, "git", *identity, "commit", "--quiet", "--all", "--message", "Add results")


def assert_reproduced(run: Run, second: Path, first: Path, **environment: str) -> None:
    """`dvc pull` and `dvc repro` bring every result, and no stage but the light ones ran."""
    assert not (second / "artifacts/pretrain").exists()
    environment.pop("AWS_ENDPOINT_URL", None)  # the address is in .dvc/config
    of_page(run, second, "dvc pull --run-cache", **environment)
    said = of_page(run, second, "dvc repro")
    ran = [line.split("'")[1] for line in said.splitlines() if line.startswith("Running stage")]
    assert set(ran) <= set(LIGHT), said
    skipped = [line.split("'")[1] for line in said.splitlines() if line.endswith("didn't change, skipping")]
    assert {"corpus", "pretrain", "sweep@docs_search", "evaluate", "export"} <= set(skipped)
    assert not (second / "runs").exists()  # any stage that opens has a folder there
    same = ["dvc.lock", "params.yaml", "artifacts/pretrain/model.safetensors", "artifacts/evaluate/report.html"]
    for name in (*same, "artifacts/corpus/drops.json", "artifacts/pages/data.html"):
        assert (second / name).read_bytes() == (first / name).read_bytes(), name


def assert_restored(run: Run, second: Path, first: Path, **environment: str) -> None:
    """Without results and without `dvc.lock`, all stages but the light ones come from the run cache of the remote."""
    shutil.rmtree(second / "artifacts")
    shutil.rmtree(second / ".dvc/cache")
    (second / "dvc.lock").unlink()
    environment.pop("AWS_ENDPOINT_URL", None)
    of_page(run, second, "dvc fetch --run-cache", **environment)
    said = of_page(run, second, "dvc repro --pull", **environment)
    ran = [line.split("'")[1] for line in said.splitlines() if line.startswith("Running stage")]
    assert set(ran) == set(LIGHT), said
    restored = [line.split("'")[1] for line in said.splitlines() if "is cached - skipping run" in line]
    assert {"corpus", "pretrain", "encoders", "sweep@docs_search", "evaluate", "export"} <= set(restored)
    for folder in ("metrics", "headline", "evaluate"):
        assert files_of(second / "artifacts" / folder) == files_of(first / "artifacts" / folder) != {}


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def cloned(run: Run, pipeline: Path, target: Path) -> Path:
    """Clone the pipeline's repository, without its cache."""
    of(run, pipeline, "git", "clone", "--quiet", "--no-hardlinks", str(pipeline), str(target))
    return target


def test_a_second_clone_reproduces_from_a_folder_without_computing(pipeline, run, tmp_path) -> None:
    pushed(run, pipeline, str(tmp_path / "remote"))
    clone = cloned(run, pipeline, tmp_path / "second")
    assert_reproduced(run, clone, pipeline)
    # What changed is computed: the check above can fail.
    config = clone / "conf/local/default.yaml"
    config.write_text(config.read_text() + "tokenizer: {sample_characters: 100000}\n")
    assert "Running stage 'tokenizer'" in of(run, clone, "dvc", "repro", "tokenizer")


def test_a_second_clone_reproduces_over_s3_without_computing(pipeline, run, tmp_path) -> None:
    with servers.S3() as s3:
        bucket = s3.bucket("results")
        pushed(run, pipeline, "s3://results/bertline", **s3.environment())
        assert any("/files/md5/" in item.key for item in bucket.objects.all())
        assert any("/runs/" in item.key for item in bucket.objects.all())
        clone = cloned(run, pipeline, tmp_path / "second")
        assert_reproduced(run, clone, pipeline, **s3.environment())
        assert_restored(run, clone, pipeline, **s3.environment())
    # The keys were in the environment alone.
    for path in (pipeline / ".dvc/config", pipeline / "params.yaml"):
        assert s3.secret not in path.read_text() and s3.key not in path.read_text()
