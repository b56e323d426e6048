"""Every document and every setting: frozen records with the unit at the end of each field's name."""
