"""What may be imported where, checked by importing: a bare GPU image has torch and Lightning, nothing else of ours."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "bertline"
# A name whose entry is None is "not installed" to `import` and to `find_spec` alike.
BLOCK = """
import sys
sys.modules.update(dict.fromkeys({names!r}))
"""


def test_import_bertline_needs_no_torch() -> None:
    code = BLOCK.format(names={"torch", "mlflow", "transformers"}) + "import bertline; print(bertline.__version__)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_package_init_imports_nothing() -> None:
    """Fingerprints follow imports: an `__init__` that imports would tie every stage to every module."""
    for path in SOURCE.glob("*/__init__.py"):
        assert not [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
        ]
