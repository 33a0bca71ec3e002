"""Where spectral lines come from: which part of G or H each large eigenvalue belongs to."""
