"""The stages of the pipeline, one file each: what a stage depends on, what it does, and what people see of it."""
