"""What a plan is for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

from fedgauge.errors import InputError, nearest
from fedgauge.values import Round, Value

Quantity = Literal["loss", "accuracy", "grad2"]
_MEANING = {"loss": "f", "accuracy": "test accuracy", "grad2": "|grad f|^2"}


@dataclass(frozen=True)
class Goal(Value):
    """Reach a value of a quantity soonest, or with a budget have the best value of it when the budget is spent.

    Attributes:
        quantity: ``loss``, ``accuracy`` or ``grad2``.
        value: what to reach; None with a budget.
        budget: seconds of the cost model to spend; None where a value is to be reached.

    >>> Goal.parse("accuracy=0.95")
    Goal(quantity='accuracy', value=0.95, budget=None)
    >>> Goal.parse("loss", budget=600.0).reached(Round(0, 0.1, 0.1))
    False
    """

    quantity: Quantity
    value: float | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        if self.quantity not in get_args(Quantity):
            raise InputError(f"There is no goal {self.quantity!r}; {nearest(self.quantity, get_args(Quantity))}")
        if (self.value is None) == (self.budget is None):
            raise InputError("A goal is a value to reach (loss=0.1) or the best within a budget; give one of the two.")
        if self.value is not None and not math.isfinite(self.value):
            raise InputError(f"The goal {self.quantity} must be a finite number, not {self.value!r}.")
        if self.quantity == "accuracy" and self.value is not None and not 0 < self.value <= 1:
            raise InputError(f"The goal accuracy must be above 0 and at most 1, not {self.value!r}.")
        if self.quantity == "grad2" and self.value is not None and self.value <= 0:
            raise InputError(f"The goal grad2 must be above 0, not {self.value!r}.")
        if self.budget is not None and not (self.budget > 0 and math.isfinite(self.budget)):
            raise InputError(f"The budget must be above 0 seconds, not {self.budget!r}.")

    @classmethod
    def parse(cls, text: str, budget: float | None = None) -> Self:
        """Read ``quantity=value``, or with a budget ``quantity``."""
        name, equals, number = (part.strip() for part in text.partition("="))
        try:
            value = float(number) if equals else None
        except ValueError:
            raise InputError(f"The goal must be QUANTITY=NUMBER, as in accuracy=0.95, not {text!r}.") from None
        return cls(name, value, budget)  # type: ignore[arg-type]  # validated when made

    @property
    def words(self) -> str:
        """The goal in words."""
        if self.value is None:
            return f"the best {_MEANING[self.quantity]} within {self.budget:g} s"
        return f"{_MEANING[self.quantity]} {'of at least' if self.rising else 'of at most'} {self.value:g}"

    @property
    def name(self) -> str:
        """The goal in one word.

        >>> Goal("loss", 0.1).name, Goal("loss", budget=60.0).name
        ('loss=0.1', 'loss')
        """
        return self.quantity if self.value is None else f"{self.quantity}={self.value:g}"

    @property
    def rising(self) -> bool:
        """Whether larger is better."""
        return self.quantity == "accuracy"

    def of(self, record: Round) -> float:
        """The quantity in a record, as a number of which less is better."""
        value = getattr(record, self.quantity)
        if value is None:
            raise InputError("The goal accuracy needs examples to test on, and there are none; choose a loss.")
        return -float(value) if self.rising else float(value)

    @property
    def limit(self) -> float:
        """The value to reach, as :meth:`of` counts it."""
        if self.value is None:
            return -math.inf
        return -self.value if self.rising else self.value

    def reached(self, record: Round) -> bool:
        """Whether a record is as good as asked."""
        return self.of(record) <= self.limit

    def best(self, records: Sequence[Round]) -> float:
        """The best that was come to, as a user reads it."""
        value = min(map(self.of, records))
        return -value if self.rising else value
