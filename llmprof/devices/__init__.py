"""The datasheet table: what vendors state, dense, per form factor, each row with its source."""
