"""The configuration page and the effective settings, both generated from the settings model.

`markdown` returns the text of ``docs/configuration.md``; a test compares the two, so the page is never
out of date. `as_yaml` returns a file that ``elanus serve --config`` accepts.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from pydantic.fields import FieldInfo

from elanus.server.settings import Settings
from elanus.server.settings_base import Section
from elanus.server.settings_load import CONFIG_VARIABLE, SECRETS, environment_name
from elanus.server.spark_conf import without_secrets

_INTRODUCTION = f"""\
# Configuration

<!-- Written by `make docs` from `settings*.py` in `src/elanus/server`: edit these files, not this one. -->

Each setting is taken from the first of these that names it:

1. the command line: `--data-dir`, `--host`, `--port`, and `--set NAME=VALUE` for any setting,
   such as `--set log.fsync=false`
2. the environment: the variable shown with each setting
3. a YAML file: `--config FILE`, or the variable `{CONFIG_VARIABLE}`
4. the default

A name that is not on this page, a value of the wrong type or out of bounds is refused: the command
prints every such problem and ends with exit code 2. `elanus settings` prints the settings in effect
in the form of such a file. Where a Kubernetes service is called `elanus`, set
`enableServiceLinks: false` in the pod: Kubernetes would otherwise add variables of its own under the
prefix `ELANUS_`.

```yaml
data_dir: /var/lib/elanus
proxy:
  port: 19530
log:
  fsync: true
```
"""

_BOUND_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def markdown() -> str:
    """Return the configuration page."""
    parts = [_INTRODUCTION]
    sections: list[tuple[str, type[Section]]] = []
    texts = descriptions(Settings)
    for name, field in Settings.model_fields.items():
        inner = _section_of(field)
        if inner is None:
            parts.extend(_setting(name, field, texts[name]))
        else:
            sections.append((name, inner))
    for name, section in sections:
        parts.append(f"\n## {name}\n\n{_one_line(section.__doc__)}\n")
        parts.extend(_settings(name, section))
    return "".join(parts)


def _settings(prefix: str, section: type[Section]) -> Iterator[str]:
    texts = descriptions(section)
    for key, field in section.model_fields.items():
        inner = _section_of(field)
        if inner is None:
            yield from _setting(f"{prefix}.{key}", field, texts[key])
        else:
            yield from _settings(f"{prefix}.{key}", inner)


def as_yaml(settings: Settings) -> str:
    """Return the settings as a YAML file, in the order of the model, without passwords and keys that are
    set."""
    shown = _without_secrets(settings.model_dump(mode="json"))
    return yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)


def _without_secrets(values: Mapping[str, object]) -> dict[str, object]:
    return {name: _shown(name, value) for name, value in values.items() if not (name in SECRETS and value)}


def _shown(name: str, value: object) -> object:
    if name == "spark_conf":
        return without_secrets(str(value))
    return _without_secrets(value) if isinstance(value, dict) else value


def _section_of(field: FieldInfo) -> type[Section] | None:
    inner = field.annotation
    return inner if isinstance(inner, type) and issubclass(inner, Section) else None


def descriptions(section: type[Section]) -> dict[str, str]:
    """Return the string below each setting of a section, by the setting's name, "" where there is none."""
    texts = dict.fromkeys(section.model_fields, "")
    for base in reversed(section.__mro__):
        if issubclass(base, Section):
            texts |= _own_descriptions(base)
    return texts


def _own_descriptions(section: type[Section]) -> Iterator[tuple[str, str]]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    assert isinstance(definition, ast.ClassDef)
    for setting, text in itertools.pairwise(definition.body):
        match setting, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(described))):
                yield name, described


def _setting(name: str, field: FieldInfo, text: str) -> Iterator[str]:
    yield f"\n### {name}\n\n{_one_line(text)}\n\n"
    facts = [f"default `{_literal(field.default)}`", *_domain(field), f"`{environment_name(name)}`"]
    yield " · ".join(facts) + "\n"


def _domain(field: FieldInfo) -> Iterator[str]:
    """Yield the allowed values of a setting, where the default does not show them."""
    choices = getattr(field.annotation, "__args__", ())
    if choices:
        yield "one of " + ", ".join(f"`{choice}`" for choice in choices)
    bounds = [
        f"{sign} {getattr(constraint, name)}"
        for constraint in field.metadata
        for name, sign in _BOUND_SIGNS.items()
        if hasattr(constraint, name)
    ]
    if bounds:
        yield " and ".join(bounds)


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.as_posix() if isinstance(value, Path) else str(value)


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())
