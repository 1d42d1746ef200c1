"""The figures of the whole line, its plots and its one HTML report."""
