"""The kinds of task, one folder each; `registry` lists them and the parts that each has."""
