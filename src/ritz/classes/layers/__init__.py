"""Class structure of layers: of the features they receive, the errors that come back, and their weights."""
