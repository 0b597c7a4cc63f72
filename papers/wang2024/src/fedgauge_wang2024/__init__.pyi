"""The public names; ``__init__.py`` imports each from here when it is first used."""

from .design_result import Design as Design
from .designer import DesignOptions as DesignOptions
from .designer import design as design
from .lens_reading import lenses as lenses
