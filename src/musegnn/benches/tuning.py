"""`--tune N`: of each contender the settings as they are and N - 1 random draws, chosen on validation nodes.

Draw i of a contender is a function of its name and of i: each setting of its space takes one of its values,
all equally likely and independent of the others. Each draw is trained with seed 0.
"""

import random
from typing import Any

from musegnn.benches.contenders import Contender, Settings


def draws(name: str, contender: Contender, count: int) -> list[Settings]:
    """What to try."""
    assert contender.settings is not None
    found = [contender.settings]
    for number in range(1, count):
        chance = random.Random(f"{name} {number}")
        drawn = {setting: chance.choice(values) for setting, values in sorted(contender.space.items())}
        found.append(contender.settings | drawn)
    return found


def choose(records: list[dict[str, Any]]) -> int:
    """The number of the draw with the best validation accuracy, of equal ones the first."""
    reached = [-1.0 if one.get("valid_accuracy") is None else float(one["valid_accuracy"]) for one in records]
    return reached.index(max(reached))
