"""Shared foundations of all packages: errors, validation, files, manifests, seeds, progress."""
