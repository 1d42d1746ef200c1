"""A configuration with a secret is refused, with the variable to use instead and without the secret."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.config import pipeline_config
from bertline.foundation.errors import ConfigError
from bertline.tracking.config import masked
from bertline.tracking.secrets import is_secret, refuse_secrets_of_dvc
from planted import SECRET

PLANTED = [
    ("tracking.uri", f"https://ada:{SECRET}@mlflow.example.org", "MLFLOW_TRACKING_PASSWORD"),
    ("tracking.uri", f"https://{SECRET}@mlflow.example.org", "MLFLOW_TRACKING_TOKEN"),
    ("tracking.uri", f"https://mlflow.example.org/#access_token={SECRET}", "MLFLOW_TRACKING_TOKEN"),
    ("tracking.uri", f"postgresql://ada:{SECRET}@db/mlflow", "MLflow server"),
    ("tracking.studies_url", f"postgresql://ada:{SECRET}@db/studies", "BERTLINE_STUDIES_URL"),
    ("tracking.studies_url", f"postgresql://ada@db/studies?sslpassword={SECRET}", "BERTLINE_STUDIES_URL"),
    ("corpus.path", f"https://ada:{SECRET}@data.example.org/text.parquet", "HF_TOKEN"),
    ("tasks.docs_match.source.path", f"s3://AKIA:{SECRET}@bucket/rows", "HF_TOKEN"),
    ("sweep.encoders", [f"hf_{SECRET}0123456789"], "HF_TOKEN"),
    ("sweep.encoders", [["one"], [f"hf_{SECRET}0123456789"]], "HF_TOKEN"),
    ("export.model_name", f"ghp_{SECRET}0123456789", "HF_TOKEN"),
    ("runtime.runs_folder", f"s3://key:{SECRET}@bucket", "environment of the command"),
    ("runtime.launcher", {"setup": [f"export MLFLOW_TRACKING_TOKEN={SECRET}"]}, "environment of the command"),
    ("runtime.launcher", {"flags": {"password": SECRET}}, "environment of the command"),
    ("runtime.launcher", {"flags": {"export": f"ALL,HF_TOKEN={SECRET}"}}, "environment of the command"),
]


@pytest.mark.parametrize(("key", "value", "advice"), PLANTED, ids=[one[0] for one in PLANTED])
def test_a_secret_in_a_configuration_is_refused_and_not_repeated(
    composed: Callable[..., dict[str, Any]], key: str, value: Any, advice: str
) -> None:
    mapping = copy.deepcopy(composed("experiment=smoke"))
    *sections, last = key.split(".")
    place = mapping
    for section in sections:
        place = place[section]
    place[last] = value
    with pytest.raises(ConfigError) as caught:
        pipeline_config(mapping)
    assert advice in str(caught.value)
    assert SECRET not in str(caught.value)


RANDOM = "a8Kd93kfLq0ZxB72mNvT"
FORMS = f"""
sk-{RANDOM}{RANDOM} | sk-proj-{RANDOM}_{RANDOM} | sk-ant-api03-{RANDOM} | sk_live_{RANDOM} | hf_{RANDOM} | npm_{RANDOM}
ghp_{RANDOM} | github_pat_{RANDOM} | glpat-{RANDOM} | dapi{RANDOM} | pypi-AgEIcHlwaS5vcmc{RANDOM} | xoxb-123-{RANDOM}
AKIAIOSFODNN7EXAMPLE | AIzaSyA-{RANDOM}abcdefg | eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{RANDOM}
-----BEGIN RSA PRIVATE KEY----- MIIE -----END RSA PRIVATE KEY----- | -----BEGIN OPENSSH PRIVATE KEY----- b3Bl
https://ada:pw@host/x | postgresql://ada:p@ss@db/x | redis://:pw@host | https://h/?sig=abc | https://h/?password=pw&a=1
run --token={RANDOM} | --token=abc | --token abc | curl --api-key {RANDOM} | --password hunter2 | -e PGPASSWORD=x
Authorization: Bearer {RANDOM} | Authorization: Basic dXNlcjpwYXNz | Authorization: token abc | bearer {RANDOM}
password: hunter2 | "password": "hunter two" | db_password = correcthorse | passphrase=abc | password='a b'
api_key={RANDOM} | apikey=abcdef | X-Api-Key: {RANDOM} | client_secret=abc | aws_secret_access_key = wJalr/K7MDENG
hvs.{RANDOM} | r8_{RANDOM} | glsa_{RANDOM} | lin_api_{RANDOM} | pplx-{RANDOM} | https://{RANDOM}@github.com/ada/x.git
my token is {RANDOM} | wandb login {RANDOM} | "key": "{RANDOM}" | KAGGLE_KEY={RANDOM}
export DB_PASS=hunter2 | smtp_pass: hunter2 | mysql -uroot -phunter2 | docker login -u ada -p hunter2
sshpass -p hunter2 ssh ada@host | postgresql://ada@db/x?sslpassword=hunter2 | curl -u ada:hunter2
123456789:AA{RANDOM}{RANDOM[:13]}
token: {RANDOM} | access_token={RANDOM} | accessToken: {RANDOM} | secret = {RANDOM} | OPENAI_API_KEY=abc
"""


@pytest.mark.parametrize("text", [form.strip() for line in FORMS.strip().splitlines() for form in line.split(" | ")])
def test_every_known_form_of_a_secret_is_seen_and_masked(text: str) -> None:
    assert is_secret(text) and not any(
        word in masked(text) for word in (RANDOM, "pw", "hunter", "horse", "MIIE", "b3Bl")
    )
    assert masked(masked(text)) == masked(text)


def test_what_is_no_secret_is_accepted() -> None:
    for text in (
        "3f786850e387550fdab836ed7e6dc881de23001b",
        "commit: 3f786850e387550fdab836ed7e6dc881de23001b",
        "tokenizer.path=/data/tokenizer2 max_tokens=512 --max-tokens=512 runtime.micro_batch_tokens=4096",
        "token_type_ids, mask_token=[MASK], eos_token=<|endoftext|>, num_tokens: 12345678, token: internationalization",
        "export TOKENIZERS_PARALLELISM=false",
        "https://host/?tokenizer=bert&max_tokens=5",
        "key: tokenizer_4096, key=experiment, /data/sk-images-of-cats-2024/images, the token is unknown",
        "sk-learn-contrib-imbalanced, task-specific-fine-tuning, mask-language-modelling-probability",
        "Bearer authentication asks for a password: null, api_key: null, --key=abc",
        "google-bert/bert-base-uncased",
        "http://127.0.0.1:5000",
        "postgresql://ada@db/studies",
        "s3://bucket/models",
        "module load cuda; export HF_TOKEN=$(cat ~/.token)",
        'export MLFLOW_TRACKING_TOKEN="$TOKEN"',
        "sbatch -pgpu --ntasks=4, ssh -p 22 ada@login, mkdir -p runs, mysql -p studies, BYPASS=proxy TRESPASS=north",
        "first pass: cleaning, num_passes=abc",
        "The key=value pairs of a query; see the token=1 example.",
    ):
        assert not is_secret(text), text


def test_the_users_own_sentences_may_say_anything(composed: Callable[..., dict[str, Any]]) -> None:
    mapping = copy.deepcopy(composed("experiment=smoke"))
    mapping["pretrain"]["mask_predictions"]["sentences"] = ["Open https://user:password@[MASK].org in a browser."]
    pipeline_config(mapping)


@pytest.mark.parametrize(
    "option", [f"secret_access_key = {SECRET}", f"password = {SECRET}", f"url = https://ada:{SECRET}@example.org/dvc"]
)
def test_credentials_in_the_file_of_dvc_that_git_tracks_are_refused(tmp_path: Path, option: str) -> None:
    path = tmp_path / "config"
    path.write_text(f"[core]\n    remote = store\n['remote \"store\"']\n    {option}\n")
    with pytest.raises(ConfigError, match=r"AWS_SECRET_ACCESS_KEY.*--local") as caught:
        refuse_secrets_of_dvc(path)
    assert SECRET not in str(caught.value)
    path.write_text("['remote \"store\"']\n    url = s3://bucket\n    endpointurl = http://127.0.0.1:9000\n")
    refuse_secrets_of_dvc(path)
    refuse_secrets_of_dvc(tmp_path / "missing")
