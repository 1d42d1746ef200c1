from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertline.foundation.errors import DataError
from corpora import build


@pytest.mark.parametrize(("stubs", "stops"), [(500, True), (200, False)])
def test_too_many_sentences_of_one_word_stop_the_stage(
    tmp_path: Path, text_config: Callable[..., Any], stubs: int, stops: bool
) -> None:
    (tmp_path / "text").mkdir()
    for number in range(2):
        lines = ["Pub.\n\n"] * (stubs // 2) + [f"A sentence of words {number} {line}.\n\n" for line in range(600)]
        (tmp_path / "text" / f"{number}.txt").write_text("".join(lines))
    config = text_config(max_stub_fraction=0.2)
    if stops:
        with pytest.raises(DataError, match=r"29.4% of 1,700 sentences are one word, most often 'Pub.' \(500 times\)"):
            build(config, tmp_path / "out")
        assert not (tmp_path / "out").exists()
    build(text_config(max_stub_fraction=None if stops else 0.2), tmp_path / "out")
