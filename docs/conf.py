"""The site: what Sphinx reads, runs and shows."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
os.environ.setdefault("OMP_NUM_THREADS", "1")  # small networks; several threads would wait for each other
sys.path[:0] = [str(HERE), str(HERE.parent / "src"), str(HERE.parent)]

import ritz
from _tools import reference_pages, starter_file

project, author, copyright = "ritz", "the ritz authors", "2026, the ritz authors"
release = version = ritz.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_tools", "gallery", "auto_gallery/*.ipynb", "auto_gallery/*.py", "**/.ipynb_checkpoints"]
exclude_patterns += ["sg_execution_times.rst"]  # Sphinx-Gallery writes it all the same
html_theme, html_title, html_static_path = "furo", "ritz", ["_static"]
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0072B2",
        "color-brand-content": "#0072B2",
        "code-font-size": "0.8125em",
    },
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}
html_css_files = ["ritz.css"]
html_copy_source = False
html_show_search_summary = False  # it fetches every page found, which a browser forbids to a site opened as a file

# Text: Markdown with headings as link targets, and Unicode for mathematics, so that nothing is fetched from a network.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"] if os.environ.get("RITZ_DOCS_DRAFT") else []

# Code: every cell and example runs anew, and an error ends the build.
work = starter_file.write(HERE / "_build" / "work")
os.environ["PYTHONPATH"] = os.pathsep.join([str(work), *sys.path[1:3], os.environ.get("PYTHONPATH", "")])
sys.path.insert(0, str(work))
nb_execution_mode, nb_execution_raise_on_error, nb_execution_timeout = "force", True, 300
nb_execution_in_temp, nb_merge_streams = True, True
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": ".",
    "image_scrapers": ("_tools.gallery_pictures.scrape",),
    "reset_modules": (),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,  # tables that would ask a network for their scripts
    "within_subsection_order": "FileNameSortKey",
    "capture_repr": (),
}

# Reference: docstrings as they are written, which is plain text with mathematics in Unicode.
autodoc_member_order, autodoc_typehints, autodoc_preserve_defaults = "bysource", "signature", True
default_role = "code"
napoleon_numpy_docstring = False


def setup(app: object) -> None:
    """Write the pages that come from the code, and read docstrings as text."""
    reference_pages.write(HERE / "reference")
    app.connect("autodoc-process-docstring", reference_pages.as_text, priority=100)  # type: ignore[attr-defined]
