"""A stage being run: its identity, inputs, run folder and records; under DVC, by hand, on ranks and in jobs."""
