"""The goal of a plan: a value to reach, or the best value within a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

from fedgauge.base.errors import InputError, nearest
from fedgauge.values import Round, Value

Quantity = Literal["loss", "accuracy", "grad2"]
HELD = 2
"""How many records in a row must meet a goal: a value that is met once may be met by luck."""
_MEANING = {"loss": "f", "accuracy": "test accuracy", "grad2": "|grad f|^2"}


@dataclass(frozen=True)
class Goal(Value):
    """Reach a value of a quantity as soon as possible, or get the best value within a budget.

    Attributes:
        quantity: ``loss``, ``accuracy`` or ``grad2``.
        value: the value to reach; None if there is a budget.
        budget: the seconds to spend, by the cost model; None if there is a value to reach.

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
    def given(cls, goal: Self | str) -> Self:
        """Return a goal as it is, or read one from text, as :meth:`parse` does."""
        if isinstance(goal, str):
            return cls.parse(goal)
        if not isinstance(goal, cls):
            raise InputError(f"goal must be a Goal, or text such as 'loss=0.1', not {goal!r}.")
        return goal

    @classmethod
    def parse(cls, text: str, budget: float | None = None) -> Self:
        """Read ``quantity=value``, or just ``quantity`` if there is a budget."""
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
        """The quantity in a record, with its sign chosen so that smaller is better."""
        value = getattr(record, self.quantity)
        if value is None:
            raise InputError("The goal accuracy needs test examples, but there are none; choose a loss.")
        return -float(value) if self.rising else float(value)

    @property
    def limit(self) -> float:
        """The value to reach, with the sign of :meth:`of`."""
        if self.value is None:
            return -math.inf
        return -self.value if self.rising else self.value

    def reached(self, record: Round) -> bool:
        """Whether a record reaches the goal's value."""
        return self.of(record) <= self.limit

    def best(self, records: Sequence[Round]) -> float:
        """The best value among records, as users read it."""
        value = min(map(self.of, records))
        return -value if self.rising else value
