"""The kinds of task, one file each, which `registry` lists, and what all of them share."""
