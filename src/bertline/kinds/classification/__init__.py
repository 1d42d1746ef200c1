"""Classification of passages or pairs of passages, with one label or several."""
