"""Linear models without an encoder: their features and weights, and the folders that hold them."""
