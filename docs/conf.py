"""How Sphinx builds these pages: `make docs`. Markdown by MyST, the API's pages from docstrings."""

import django
from django.conf import settings

from django_proletarian.version import __version__

# Autodoc imports the package, models included. No database is opened.
settings.configure(
    INSTALLED_APPS=["django_proletarian"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "none"}},
)
django.setup()

project = "django-proletarian"
author = "The django-proletarian developers"
copyright = author  # noqa: A001 # Sphinx reads it by this name
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["README.md"]
myst_enable_extensions = ["colon_fence", "attrs_block"]
myst_heading_anchors = 4
default_role = "code"  # docstrings write `names` in single backticks
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

html_theme = "furo"
html_title = f"django-proletarian {version}"
html_copy_source = False
html_show_sphinx = False
