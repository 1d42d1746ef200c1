"""Inference with trained models: load, fill_mask, embed, predict, attentions."""
