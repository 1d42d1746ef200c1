"""Progress on images that lack the package that draws it."""

import subprocess
import sys


def test_progress_is_shown_as_lines_where_rich_is_missing():
    code = (
        "import sys; sys.modules['rich'] = None\n"
        "from bertline.training.progress import TrainingProgress\n"
        "sys.stdout.isatty = lambda: True\n"
        "TrainingProgress('training', first_step=0, num_steps=1, every_s=0, shown=True).show(1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "training: step 1 of 1\n", done.stderr
