"""The embedded demo: a corpus and four tasks made from the docstrings of installed Python packages."""
