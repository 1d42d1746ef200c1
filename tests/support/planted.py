"""Secrets that tests plant where a program takes addresses and tokens, and the search for them in all that it wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SECRET = "".join(("pl4nted", "SecretValue"))  # in parts: the search is also through this file and its compiled form
# Every planted value contains SECRET, so that one search finds them all.
ENVIRONMENT = {
    "MLFLOW_TRACKING_TOKEN": f"token-{SECRET}",
    "MLFLOW_TRACKING_USERNAME": "ada",
    "MLFLOW_TRACKING_PASSWORD": f"password-{SECRET}",
    "HF_TOKEN": f"hf_{SECRET}0123456789",
    "HUGGING_FACE_HUB_TOKEN": f"hf_{SECRET}0123456789",
    "AWS_ACCESS_KEY_ID": f"AKIA{SECRET}",
    "AWS_SECRET_ACCESS_KEY": f"secret-{SECRET}",
    "AWS_SESSION_TOKEN": f"session-{SECRET}",
    "AZURE_STORAGE_CONNECTION_STRING": f"AccountKey={SECRET}",
    "GIT_TOKEN": f"ghp_{SECRET}",
    "PGPASSWORD": f"password-{SECRET}",
    "WANDB_API_KEY": SECRET,
    "PIP_INDEX_URL": f"https://ada:{SECRET}@index.example.org/simple",
}
GIT_REMOTE = f"https://ada:{SECRET}@git.example.org/bertline.git"


def places_of_secret(folder: Path) -> list[str]:
    """Files below a folder that contain the secret; git's own folder has it, in the address of its remote."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    ours = (path for path in files if path.relative_to(folder).parts[0] != ".git")
    return [str(path.relative_to(folder)) for path in ours if SECRET.encode() in path.read_bytes()]


def rows_with_secret(address: str) -> list[str]:
    """Tables of a PostgreSQL database that contain the secret in a row."""
    import psycopg

    found = []
    with psycopg.connect(address) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert names
        for (name,) in names:
            if any(SECRET in str(row) for row in connection.execute(f'SELECT * FROM "{name}"')):
                found.append(name)
    return found


def objects_with_secret(bucket: Any) -> list[str]:
    """Objects of a bucket that contain the secret."""
    objects = list(bucket.objects.all())
    assert objects
    return [item.key for item in objects if SECRET.encode() in item.get()["Body"].read()]
