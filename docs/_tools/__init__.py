"""Tools for the build of the site beside Sphinx: pages from code, pictures from figures, the file of `ritz new`."""
