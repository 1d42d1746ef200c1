"""WordPiece: training a vocabulary reproducibly, and encoding with it."""
