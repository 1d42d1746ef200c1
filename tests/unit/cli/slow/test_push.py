"""`bertline push`, against a small hub on loopback."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

TOKEN = "hf_secretsecretsecret"
NAME = "ada/reviews"


@dataclass
class Hub:
    """Repositories by name, as a hub has them."""

    address: str = ""
    is_private: dict[str, bool] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    """Large files by their digest."""


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub that takes small files in a commit and safetensors as large files."""
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, content: Any, status: int = 200) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def do_GET(self) -> None:
            if NAME not in state.is_private:
                return self.answer({"error": "Repository not found"}, 404)
            private = state.is_private[NAME]
            return self.answer({"id": NAME, "private": private, "siblings": [], "sha": "0" * 40, "tags": []})

        def do_PUT(self) -> None:
            state.objects[self.path.rpartition("/")[2]] = self.body()
            self.answer({})

        def do_POST(self) -> None:
            body = self.body()
            if self.headers.get("Authorization") != f"Bearer {TOKEN}" and "objects" not in self.path:
                return self.answer({"error": "Invalid username or password."}, 401)
            match self.path.rpartition("/")[2]:
                case "create":
                    asked = json.loads(body)
                    name = f"{asked['organization']}/{asked['name']}"
                    if asked["organization"] != "ada":
                        return self.answer({"error": "You don't have the rights to create a model there"}, 403)
                    if name in state.is_private:
                        return self.answer({"error": "You already created it", "url": f"{state.address}/{name}"}, 409)
                    state.is_private[name] = asked.get("visibility") == "private" or bool(asked.get("private"))
                    return self.answer({"url": f"{state.address}/{name}", "name": name})
                case "batch":
                    objects = json.loads(body)["objects"]
                    to = {one["oid"]: {"upload": {"href": f"{state.address}/object/{one['oid']}"}} for one in objects}
                    return self.answer(
                        {"transfer": "basic", "objects": [{**one, "actions": to[one["oid"]]} for one in objects]}
                    )
                case "yaml" | "validate-yaml":
                    return self.answer({"errors": [], "warnings": []})
            if "preupload" in self.path:
                modes = [
                    {
                        "path": one["path"],
                        "uploadMode": "lfs" if one["path"].endswith("safetensors") else "regular",
                        "shouldIgnore": False,
                    }
                    for one in json.loads(body)["files"]
                ]
                return self.answer({"files": modes})
            assert "/commit/" in self.path, self.path
            for line in map(json.loads, body.splitlines()):
                match line:
                    case {"key": "file", "value": {"path": path, "content": content}}:
                        state.files[path] = base64.b64decode(content)
                    case {"key": "lfsFile", "value": {"path": path, "oid": oid}}:
                        state.files[path] = state.objects[oid]
            return self.answer(
                {"commitUrl": f"{state.address}/{NAME}/commit/0", "commitOid": "0" * 40, "success": True}
            )

        def log_message(self, *_: Any) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An exported folder, as far as the hub is concerned."""
    folder = tmp_path / "model"
    (folder / "onnx").mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 40)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A model\n")
    (folder / "onnx/model.onnx").write_bytes(b"onnx")
    return folder


def pushed(address: str, *arguments: str, token: str | None = TOKEN, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {"HF_ENDPOINT": address, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(home)}
    environment |= {} if token is None else {"HF_TOKEN": token}
    command = [sys.executable, "-m", "bertline", "push", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert TOKEN not in done.stdout + done.stderr and "Traceback" not in done.stderr
    return done


def test_every_file_of_the_folder_arrives_in_a_private_repository(hub: Hub, model: Path, tmp_path: Path) -> None:
    done = pushed(hub.address, str(model), NAME, home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{hub.address}/{NAME}" in done.stdout
    assert hub.is_private == {NAME: True}
    files = {path.relative_to(model).as_posix(): path.read_bytes() for path in model.rglob("*") if path.is_file()}
    assert hub.files == files
    assert list(hub.objects) == [hashlib.sha256(files["model.safetensors"]).hexdigest()]


def test_a_public_repository_must_be_asked_for(hub: Hub, model: Path, tmp_path: Path) -> None:
    hub.is_private[NAME] = False
    refused = pushed(hub.address, str(model), NAME, home=tmp_path)
    assert refused.returncode == 1 and "is a public repository. Add --public" in refused.stderr and not hub.files
    assert pushed(hub.address, str(model), NAME, "--public", home=tmp_path).returncode == 0
    assert hub.files


@pytest.mark.parametrize(
    ("arguments", "token", "message"),
    [
        ((NAME,), None, "HF_TOKEN is not set"),
        ((NAME,), "hf_other", "is not valid, or has expired"),
        (("bob/reviews",), TOKEN, "permission to write"),
        (("a b",), TOKEN, "is no name for a repository"),
    ],
)
def test_a_refusal_says_what_to_do(
    hub: Hub, model: Path, tmp_path: Path, arguments: tuple[str, ...], token: str | None, message: str
) -> None:
    done = pushed(hub.address, str(model), *arguments, token=token, home=tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("error: ") and message in done.stderr, done.stderr
    assert not hub.files


@pytest.mark.parametrize(
    ("pickle", "message"), [("pytorch_model.bin", "pickled files"), ("sub/head.pkl", "sub/head.pkl"), (None, "missing")]
)
def test_pickles_and_what_is_no_model_are_refused(
    model: Path, tmp_path: Path, pickle: str | None, message: str
) -> None:
    if pickle is None:
        (model / "model.safetensors").unlink()
    else:
        (model / pickle).parent.mkdir(exist_ok=True)
        (model / pickle).write_bytes(b"")
    done = pushed("http://127.0.0.1:9", str(model), NAME, home=tmp_path)
    assert done.returncode == 1 and message in done.stderr
