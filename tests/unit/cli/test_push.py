"""`bertline push`, against an imagined hub with the signatures of `huggingface_hub`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import huggingface_hub
import pytest
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import validate_repo_id

from bertline.cli.commands import push
from bertline.foundation.errors import BertlineError

TOKEN = "hf_secretsecretsecret"
NAME = "ada/reviews"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The interface of the hub; `is_private` has its repositories, in which ada may write."""
    api = mock.create_autospec(huggingface_hub.HfApi, instance=True, endpoint="https://hub.example.org", is_private={})

    def signed_in(token: str) -> Any:
        api.token = token
        return api

    def create_repo(name: str, *, private: bool, exist_ok: bool) -> Any:
        validate_repo_id(name)
        status = 401 if api.token != TOKEN else 403 if not name.startswith("ada/") else 200
        if status != 200:
            raise HfHubHTTPError(f"refused {api.token}", response=mock.Mock(status_code=status))
        api.is_private.setdefault(name, private)
        return mock.MagicMock(repo_id=name, __str__=lambda _: f"{api.endpoint}/{name}")

    api.create_repo.side_effect = create_repo
    api.model_info.side_effect = lambda name: SimpleNamespace(private=api.is_private[name])
    monkeypatch.setattr(huggingface_hub, "HfApi", signed_in)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return api


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An exported folder, as far as the hub is concerned."""
    for name in ("config.json", "model.safetensors", "README.md"):
        (tmp_path / name).write_text("{}")
    return tmp_path


def pushed(folder: Path, name: str, *, public: bool = False) -> None:
    push.__wrapped__({"folder": str(folder), "name": name, "public": public})


def test_the_folder_arrives_in_a_private_repository(hub: Any, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pushed(model, NAME)
    assert f"{model} is at https://hub.example.org/{NAME}" in capsys.readouterr().out
    assert hub.is_private == {NAME: True}
    hub.upload_folder.assert_called_once_with(repo_id=NAME, folder_path=model, commit_message=mock.ANY)


def test_a_public_repository_must_be_asked_for(hub: Any, model: Path) -> None:
    hub.is_private[NAME] = False
    with pytest.raises(BertlineError, match="is a public repository. Add public=true"):
        pushed(model, NAME)
    assert not hub.upload_folder.called
    pushed(model, NAME, public=True)
    assert hub.upload_folder.called


@pytest.mark.parametrize(
    ("name", "token", "message"),
    [
        (NAME, "", "HF_TOKEN is not set"),
        (NAME, "hf_other", "refuses the token in HF_TOKEN"),
        ("bob/reviews", TOKEN, "permission to write"),
        ("a b", TOKEN, "is no name for a repository"),
    ],
)
def test_a_refusal_says_what_to_do_and_not_the_token(
    hub: Any, model: Path, monkeypatch: pytest.MonkeyPatch, name: str, token: str, message: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(BertlineError, match=message) as raised:
        pushed(model, name)
    assert not hub.upload_folder.called
    assert not token or token not in str(raised.value)


@pytest.mark.parametrize(
    ("pickle", "message"), [("pytorch_model.bin", "pickled files"), ("sub/head.pkl", "sub/head.pkl"), (None, "missing")]
)
def test_pickles_and_what_is_no_model_are_refused(hub: Any, model: Path, pickle: str | None, message: str) -> None:
    if pickle is None:
        (model / "model.safetensors").unlink()
    else:
        (model / pickle).parent.mkdir(exist_ok=True)
        (model / pickle).touch()
    with pytest.raises(BertlineError, match=message):
        pushed(model, NAME)
    assert not hub.create_repo.called
