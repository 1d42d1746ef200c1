"""Hugging Face folders with model cards, checked against what transformers computes, and their ONNX files."""
