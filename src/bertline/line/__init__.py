"""The line as a whole: root configuration, stage map, fingerprints, launching."""
