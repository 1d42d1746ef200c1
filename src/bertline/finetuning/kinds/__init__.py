"""One module per kind of task: encoding of its rows, its head, its loss and its scores."""
