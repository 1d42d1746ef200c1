"""Work as a job of Slurm: submitted or attached to by a recipe, and requeued by itself."""
