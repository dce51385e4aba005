"""Nothing is offered that does nothing: every setting is read, every metric is counted."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from elanus.metrics import Metrics
from elanus.server.settings_load import setting_names

SOURCES = Path(__file__).parents[3] / "src" / "elanus"
DECLARATIONS = {SOURCES / "metrics.py", SOURCES / "server" / "settings.py"}


@cache
def attributes_used() -> frozenset[str]:
    """Every name that stands behind a point somewhere in the code, but for the declarations."""
    text = "\n".join(f.read_text() for f in SOURCES.rglob("*.py") if f not in DECLARATIONS)
    return frozenset(re.findall(r"\.([a-z]\w*)", text))


@pytest.mark.parametrize("setting", setting_names())
def test_a_setting_is_read(setting: str) -> None:
    assert setting.rpartition(".")[2] in attributes_used(), "a setting that nothing reads is a promise broken"


@pytest.mark.parametrize("metric", sorted(set(vars(Metrics())) - {"registry"}))
def test_a_metric_is_counted(metric: str) -> None:
    assert metric in attributes_used(), "a metric that nothing counts is always zero"
