"""What the papers share: figures and statements, and how a record is computed, judged, drawn and filed."""
