"""What the build of the site needs beside Sphinx: pages from code, pictures from figures, the file of `ritz new`."""
