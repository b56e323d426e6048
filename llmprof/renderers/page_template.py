"""The templates of the pages, and what they may call."""

from typing import TYPE_CHECKING

from llmprof.renderers.caveat_meanings import meaning_of
from llmprof.renderers.glossary import GLOSSARY, glossed

if TYPE_CHECKING:
    from jinja2 import Template


def page_template(name: str) -> "Template":
    """A template that escapes what it is given and fails on a name that it is not given."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("llmprof", "renderers/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["glossed"] = glossed
    environment.filters["caveat_meaning"] = meaning_of
    environment.globals["glossary"] = GLOSSARY
    return environment.get_template(name)
