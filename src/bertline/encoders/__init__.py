"""Encoders of every family, read from and written to folders."""
