"""How Sphinx builds the documentation: `./dev docs`."""

import django
from django.conf import settings

import interlock

settings.configure(INSTALLED_APPS=["django.contrib.contenttypes", "interlock.django"], USE_TZ=True)
django.setup()

project = "interlock"
author = "the authors of interlock"
copyright = "the authors of interlock; Apache-2.0"
version = release = interlock.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_title = f"interlock {release}"
myst_heading_anchors = 4  # pages link to headings
nitpicky = False  # annotations name types of libraries that have no index here
default_role = "code"  # docstrings put names between single backquotes
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_use_ivar = True
napoleon_numpy_docstring = False
