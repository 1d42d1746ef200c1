"""What an encoder has to beat: one module for each family of tasks."""
