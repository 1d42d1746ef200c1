"""Looking inside an encoder: what its heads attend to, what they know of syntax, what context does to a word."""
