"""`make test-changed`: what a test needs."""

from changed_tests import ROOT, needed


def test_a_module_needs_what_it_imports_inside_functions_too_and_a_test_what_it_names() -> None:
    of_module = {path.relative_to(ROOT).as_posix() for path in needed(ROOT / "src/bertline/kinds/regression.py")}
    assert {"src/bertline/kinds/base.py", "src/bertline/baselines/linear.py"} <= of_module
    of_test = {path.relative_to(ROOT).as_posix() for path in needed(ROOT / "tests/unit/run/test_stages.py")}
    assert {"src/bertline/stages/registry.py", "dvc.yaml"} <= of_test
