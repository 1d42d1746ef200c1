"""Using what was made: load, fill_mask, embed, predict, attentions."""
