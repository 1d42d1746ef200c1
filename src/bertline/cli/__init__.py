"""The console command `bertline`: composing the configuration, checking what people write, errors for people.

`main.py` finds the subcommand; each is a function of its arguments. Only recipes in `pipelines/` import this package.
"""
