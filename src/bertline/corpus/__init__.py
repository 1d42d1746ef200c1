"""Reading, cleaning and de-duplicating text; splitting it into sentences and into train and validation."""
