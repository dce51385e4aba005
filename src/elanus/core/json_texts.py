"""JSON texts in the parameters of clients."""

from __future__ import annotations

import json
from typing import Any


def json_value(text: str) -> Any:
    """Return the value of a JSON text. Raises `ValueError`, also if it is nested too deeply.

    JSON may escape half of a surrogate pair. No text that is stored or sent can hold it, so it is refused.
    """
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value
