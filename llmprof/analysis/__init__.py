"""Pure functions from records to judgements."""
