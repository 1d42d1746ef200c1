"""One module for each use of BERT: from a user's inputs to answers, by the same computation that evaluation scores."""
