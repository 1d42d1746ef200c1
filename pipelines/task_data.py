"""task_data@TASK: rows of a labelled source, split into train, dev and test (artifacts/tasks/TASK).

python pipelines/task_data.py task_name=docs_library
"""

from bertline.cli.composition import run_recipe
from bertline.stages.task_data import TaskData

if __name__ == "__main__":
    run_recipe(TaskData(), __file__, __doc__)
