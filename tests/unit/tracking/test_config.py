import pytest

from bertline.tracking.config import is_local, masked


@pytest.mark.parametrize(
    "uri", ["https://ada:pa55@mlflow.example.org", "postgresql://ada:pa55@db/mlflow", "https://h/x?password=pa55&a=1"]
)
def test_no_password_survives_masking(uri: str) -> None:
    assert "pa55" not in masked(f"cannot open {uri}: refused")


def test_an_address_without_a_password_is_shown_whole() -> None:
    assert masked("http://mlflow.example.org:5000/a@b") == "http://mlflow.example.org:5000/a@b"


@pytest.mark.parametrize("uri", ["http://localhost:5000", "http://[::1]:5000", "sqlite:////tmp/x.db", "/tmp/mlruns"])
def test_this_machine_is_local(uri: str) -> None:
    assert is_local(uri)


@pytest.mark.parametrize("uri", ["https://mlflow.example.org", "http://10.0.0.3:5000", "postgresql://db/mlflow"])
def test_another_machine_is_not(uri: str) -> None:
    assert not is_local(uri)
