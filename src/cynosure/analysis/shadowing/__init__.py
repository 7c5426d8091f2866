"""How long a softmax run provably keeps its clusters: `shadow`."""

from .record import Plateau, Shadow, shadow
from .trap import Tube

__all__ = ["Plateau", "Shadow", "Tube", "shadow"]
