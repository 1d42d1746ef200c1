"""Labelled texts and words as sequences of tokens, with their batches; all kinds of tasks share it."""
