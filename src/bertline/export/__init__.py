"""Hugging Face folders, model cards and their verification; the only package that imports transformers."""
