"""What every floor stands on: errors, validation, files, manifests, seeds, progress."""
