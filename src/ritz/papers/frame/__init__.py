"""What the papers share: figures, their statements, and how a record is computed, judged, drawn and filed."""
