"""One module for each use of BERT: how its rows are encoded, what its head computes, how it is trained and scored."""
