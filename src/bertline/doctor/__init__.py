"""Checks of a machine before the first run on it: software, devices, ranks, folders and servers."""
