"""Budget planner: the cost of a pretraining run on given hardware, and the best use of a time budget."""
