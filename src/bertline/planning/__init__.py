"""The budget planner: what a pretraining takes on named hardware, and what a budget is best used for."""
