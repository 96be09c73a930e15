"""An app whose rows are occupied."""
