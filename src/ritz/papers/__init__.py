"""Every figure and claim of the papers, re-run: one folder a paper, and the frame that they share."""
