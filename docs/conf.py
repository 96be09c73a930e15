"""How Sphinx builds the documentation: `./dev docs`."""

import re

import django
from django.conf import settings
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

import interlock

settings.configure(INSTALLED_APPS=["django.contrib.contenttypes", "interlock.django"], USE_TZ=True)
django.setup()

project = "interlock"
author = "the authors of interlock"
copyright = "the authors of interlock; Apache-2.0"
version = release = interlock.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_design"]
myst_enable_extensions = ["colon_fence"]
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_title = f"interlock {release}"
myst_heading_anchors = 4  # pages link to headings
nitpicky = False  # annotations name types of libraries that have no index here
default_role = "code"  # docstrings put names between single backquotes
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_use_ivar = True
napoleon_numpy_docstring = False

FOR_CONTRIBUTORS = ("adr/",)
"""Pages that are linked from one for contributors, and are neither in the sidebar nor found by the search."""


class EnglishAndChinese(SearchEnglish):
    """The search of English pages, which also finds Chinese words: each pair of signs beside each other is a word."""

    CHINESE = re.compile(r"[\u4e00-\u9fff]+")
    js_splitter_code = """
var splitQuery = (query) => query.split(/[^\\p{Letter}\\p{Number}_]+/gu).filter((word) => word).flatMap((word) => {
  if (!/^[\\u4e00-\\u9fff]{2,}$/.test(word)) return [word];
  return Array.from({length: word.length - 1}, (_, at) => word.slice(at, at + 2));
});
"""

    def split(self, input: str) -> list[str]:
        """Return the words of a text."""
        words = super().split(self.CHINESE.sub(" ", input))
        for run in self.CHINESE.findall(input):
            words += [run[at : at + 2] for at in range(max(1, len(run) - 1))]
        return words


def leave_to_contributors(app: Sphinx, doctree: object) -> None:
    """Take a page out of the search, and of the check that each page is in a table of contents."""
    if app.env.docname.startswith(FOR_CONTRIBUTORS):
        app.env.metadata[app.env.docname].update(orphan="", nosearch="")


def hide_constructor(app: Sphinx, what: str, name: str, *rest: object) -> tuple[str, str] | None:
    """Show no arguments of classes that only a connection makes."""
    return ("", "") if what == "class" and name.startswith("interlock.") and name.count(".") == 1 else None


def setup(app: Sphinx) -> None:
    """Bring the above in."""
    app.add_search_language(EnglishAndChinese)
    app.connect("doctree-read", leave_to_contributors)
    app.connect("autodoc-process-signature", hide_constructor)
