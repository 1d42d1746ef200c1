"""push: upload an exported model folder to the Hugging Face hub."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import bertline  # turns the hub's telemetry off, before it is imported
from bertline.cli.project import of_caller
from bertline.foundation.errors import ArtifactError, ConfigError, MachineError
from bertline.foundation.progress import say

TOKEN = "HF_TOKEN"
# What torch, joblib and pickle write: it can run any code when it is loaded.
PICKLES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"})


def push(arguments: list[str]) -> None:
    """Upload an exported model folder to the Hugging Face hub.

        HF_TOKEN=... bertline push artifacts/export/encoder OWNER/NAME
        HF_TOKEN=... bertline push artifacts/export/docs_library OWNER/NAME --public

    The repository is made if there is none, private unless --public is given. The same command again uploads what has
    changed. The token, with permission to write, comes from the environment and is never printed. Folders with pickled
    weights are refused.
    """
    parser = argparse.ArgumentParser(prog="bertline push", add_help=False)
    parser.add_argument("folder", type=of_caller)
    parser.add_argument("name", metavar="OWNER/NAME")
    parser.add_argument("--public", action="store_true")
    parsed = parser.parse_args(arguments)
    check_folder(parsed.folder)
    say(f"{parsed.folder} is at {upload(parsed.folder, parsed.name, public=parsed.public)}")


def check_folder(folder: Path) -> None:
    """Check that a folder is a whole model without pickles.

    Raises:
        ArtifactError: It is not.
    """
    if not (folder / "config.json").is_file() or not (folder / "model.safetensors").is_file():
        raise ArtifactError(
            f"{folder} is no exported model: config.json or model.safetensors is missing. Name a folder of "
            "artifacts/export, or the one that `bertline finetune` printed."
        )
    pickles = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in PICKLES)
    if pickles:
        raise ArtifactError(
            f"{folder} has pickled files, which can run any code when they are loaded: {', '.join(pickles)}. Delete "
            "them; the weights are in model.safetensors."
        )


def upload(folder: Path, name: str, *, public: bool) -> str:
    """Upload a folder to a repository of the hub, which is made if there is none; return its address.

    Raises:
        ConfigError: There is no token, or the repository is public and `public` was not asked for.
        MachineError: The hub refused, or cannot be reached.
    """
    token = os.environ.get(TOKEN, "").strip()
    if not token:
        raise ConfigError(
            f"{TOKEN} is not set. Make a token with permission to write at https://huggingface.co/settings/tokens and "
            f"give it in the environment: export {TOKEN}=..."
        )
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, HTTPError  # HTTPError is that of its HTTP client

    api = HfApi(token=token)
    try:
        repository = api.create_repo(name, private=not public, exist_ok=True)
        if not public and not api.model_info(repository.repo_id).private:
            raise ConfigError(f"{name} is a public repository. Add --public if that is meant, or name another.")
        message = f"Upload with bertline {bertline.__version__}"
        api.upload_folder(repo_id=repository.repo_id, folder_path=folder, commit_message=message)
    except HFValidationError as error:
        raise ConfigError(f"{name!r} is no name for a repository: {error}") from error
    except (HTTPError, OSError) as error:
        response = getattr(error, "response", None)
        status = None if response is None else response.status_code
        advice = {
            401: f"The token in {TOKEN} is not valid, or has expired.",
            403: f"The token in {TOKEN} may not write there: it needs permission to write, and OWNER must be you or an "
            "organization of yours.",
        }.get(status or 0, "Give the same command again when the hub can be reached; it resumes.")
        reason = " ".join(str(error).split()).replace(token, "***")
        raise MachineError(f"the hub at {api.endpoint} did not take {name}: {reason}. {advice}") from error
    return str(repository)
