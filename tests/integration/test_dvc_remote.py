"""A DVC remote over S3's protocol: a second clone reproduces the whole pipeline without computing.

The commands are those of docs/howto/share.md, with the reader's own address filled in.
"""

from __future__ import annotations

import re
from pathlib import Path

import servers
from smoke import Run, succeeded

PAGE = (Path(__file__).resolve().parents[2] / "docs/howto/share.md").read_text()
# These two run in every `dvc repro`, and compute nothing: they write what DVC is to see.
LIGHT = {"configure", "identity"}
COMPUTED = {"corpus", "pretrain", "sweep@docs_search", "evaluate", "export"}
GIT = "git -c user.name=ada -c user.email=ada@example.org"


def printed(run: Run, folder: Path, command: str) -> str:
    """What a command prints; it must not fail."""
    done = succeeded(run(folder, *command.split()))
    return done.stdout + done.stderr


def of_page(command: str, replaced: str = "", by: str = "") -> str:
    """A command of the page."""
    assert re.search(rf"^{re.escape(command)}(\s|$)", PAGE, re.MULTILINE), command
    return command.replace(replaced, by)


def stages(printed: str, pattern: str) -> set[str]:
    return set(re.findall(pattern, printed, re.MULTILINE))


def test_a_second_clone_reproduces_without_computing(pipeline, run, tmp_path, monkeypatch) -> None:
    second = tmp_path / "second"
    with servers.S3() as s3:
        bucket = s3.bucket("results")
        for name, value in s3.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_ENDPOINT_URL")  # the address is in .dvc/config
        printed(run, pipeline, of_page("dvc remote add --default store s3://BUCKET/bertline", "BUCKET", "results"))
        example = "https://s3.example.org"
        printed(run, pipeline, of_page(f"dvc remote modify store endpointurl {example}", example, s3.url))
        printed(run, pipeline, of_page("dvc push --run-cache"))
        printed(run, pipeline, "git add --all")  # the tree of the tests may have files that are not committed
        printed(run, pipeline, "git add --force conf/local")
        printed(run, pipeline, f"{GIT} commit --quiet --all --message Results")
        assert any("/files/md5/" in item.key for item in bucket.objects.all())
        assert any("/runs/" in item.key for item in bucket.objects.all())

        printed(run, pipeline, f"git clone --quiet --no-hardlinks {pipeline} {second}")
        assert not (second / "artifacts/pretrain").exists()
        printed(run, second, of_page("dvc pull --run-cache"))
        repeated = printed(run, second, of_page("dvc repro"))
        assert stages(repeated, r"^Running stage '(.*)'") <= LIGHT, repeated
        assert stages(repeated, r"'(.*)' didn't change, skipping$") >= COMPUTED
        assert not (second / "runs").exists()  # any stage that opens has a folder there
        same = ("pretrain/model.safetensors", "evaluate/report.html", "corpus/drops.json", "pages/data.html")
        for name in ("dvc.lock", "params.yaml", *(f"artifacts/{name}" for name in same)):
            assert (second / name).read_bytes() == (pipeline / name).read_bytes(), name

    # The keys were in the environment alone.
    for path in (pipeline / ".dvc/config", pipeline / "params.yaml"):
        assert s3.secret not in path.read_text() and s3.key not in path.read_text()
    # What changed is computed: the checks above can fail.
    config = second / "conf/local/default.yaml"
    config.write_text(config.read_text() + "tokenizer: {sample_characters: 100000}\n")
    assert "Running stage 'tokenizer'" in printed(run, second, "dvc repro tokenizer")
