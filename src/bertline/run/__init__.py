"""The pipeline as a whole: root configuration, stage map, fingerprints, launching."""
