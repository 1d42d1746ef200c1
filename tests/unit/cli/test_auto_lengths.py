"""`examples.lengths=auto` in composed configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bertline.cli.inputs import with_suited_lengths
from bertline.config import pipeline_config
from bertline.foundation.errors import DataError

PROSE = "The old gardener watered the trees before the rain came. My sister, who was afraid of dogs, said nothing. "


@pytest.fixture
def mapping(composed: Any, tmp_path: Path) -> Any:
    """Compose the configuration for long documents at a path with spaces."""
    folder = tmp_path / "my texts"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.txt").write_text(PROSE * 200)

    def make(*overrides: str) -> dict[str, Any]:
        return composed("corpus=text", f"corpus.path='{folder}'", "examples.lengths=auto", *overrides)

    return make


def phases(*lengths: int) -> str:
    return f"pretrain.phases=[{','.join(f'{{steps: 9000, max_length: {n}, global_batch_size: 8}}' for n in lengths)}]"


@pytest.mark.parametrize(
    ("given", "lengths", "of_phases"),
    [((16, 64), [64, 128], [64, 128]), ((128,), [64], [64]), ((64, 64, 512), [64, 128], [64, 64, 128])],
)
def test_lengths_and_phases_suit_the_text_and_the_model(
    mapping: Any, given: tuple[int, ...], lengths: list[int], of_phases: list[int]
) -> None:
    before = mapping(phases(*given), "model.max_position_embeddings=128")
    suited = with_suited_lengths(before)
    assert suited["examples"]["lengths"] == lengths
    assert [phase["max_length"] for phase in suited["pretrain"]["phases"]] == of_phases
    assert {phase["steps"] for phase in suited["pretrain"]["phases"]} == {9000}
    pipeline_config(suited)


def test_numbers_stay_as_they_are(composed: Any) -> None:
    plain = composed()
    assert with_suited_lengths(plain) is plain


def test_a_path_that_is_not_there_is_named(composed: Any) -> None:
    with pytest.raises(DataError, match=r"corpus.path: '/no/such' .* matches nothing"):
        with_suited_lengths(composed("corpus=text", "corpus.path=/no/such", "examples.lengths=auto"))
