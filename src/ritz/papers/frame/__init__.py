"""What the papers share: what a figure is, how it is found, run, judged and filed."""
