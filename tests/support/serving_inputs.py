"""What tests register: a folder that is only looked at, or a model that is loaded."""

from __future__ import annotations

import pyarrow as pa

from bertline.tracking.mlmodel import Serving


def serving(dataset: tuple[str, str] | None = None) -> Serving:
    """How a folder would be loaded that nobody loads."""
    return Serving(
        loader_module="bertline.inference.pyfunc",
        inputs={"text": "text"},
        outputs=pa.schema([("vector", pa.list_(pa.float32()))]),
        params={},
        settings={"device": "cpu"},
        example={"text": "A text."},
        packages=("torch",),
        dataset=dataset,
    )
