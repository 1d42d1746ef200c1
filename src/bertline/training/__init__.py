"""What any training run needs: optimizers, schedules, checkpoints, the one Trainer builder."""
