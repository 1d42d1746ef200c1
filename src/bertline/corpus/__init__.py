"""Text in: reading, cleaning, de-duplicating, splitting into sentences and into train and validation."""
