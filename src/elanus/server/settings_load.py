"""Load settings from, in order of precedence: command line, environment, YAML file, defaults.

The layers are merged key by key, so a file may set `proxy.host` and the environment `proxy.port`.
Every key of every layer must be one of `elanus.server.settings.Settings`: a misspelled setting that is
silently ignored is discovered in production, so unknown keys are refused, with a suggestion of the
setting that was probably meant. All problems are collected before any is reported.

In the environment a setting is named by its path in upper case after ``ELANUS_``, with two underscores
between section and name: ``ELANUS_PROXY__PORT``. The prefix belongs to Elanus; the only other variables
that may have it are ``ELANUS_CONFIG`` (the YAML file) and ``ELANUS_TOKEN`` (by which commands sign in).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

from pydantic import ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

from elanus.server.settings import Settings
from elanus.server.settings_base import Section

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

ENV_PREFIX = "ELANUS_"
ENV_DELIMITER = "__"
CONFIG_VARIABLE = ENV_PREFIX + "CONFIG"
_NO_SETTINGS = frozenset({CONFIG_VARIABLE, ENV_PREFIX + "TOKEN"})
"""The variables with the prefix that are not settings. The token is an option of `elanus.cli.options`."""
SECRETS = frozenset({"api_key", "root_password"})
"""The last parts of the names of settings whose values are shown nowhere, in errors neither."""


class InvalidSettings(Exception):
    """The settings cannot be used. ``problems`` has one line per problem, each naming its source."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def load(config: Path | None = None, flags: Mapping[str, object] | None = None) -> Settings:
    """Return the effective settings.

    ``config`` is the YAML file (``ELANUS_CONFIG`` when ``None``). ``flags`` holds the values from the
    command line, by dotted name (``"proxy.port"``). Raises `InvalidSettings`.
    """
    flags = flags or {}
    path = config or _config_of_environment()
    in_file = _keys_of_file(path) if path else {}
    in_environment = _keys_of_environment()
    problems = [
        *_unknown(in_file, f"{path}"),
        *_unknown(in_environment, "environment"),
        *_unknown({name: name for name in flags}, "command line"),
    ]
    if problems:
        raise InvalidSettings(problems)
    try:
        layered = _layered_model(path)(**_nested(flags))
    except ValidationError as error:
        sources = ((flags, "command line"), (in_environment, "environment"), (in_file, f"{path}"))
        raise InvalidSettings(_explain(e, sources) for e in error.errors()) from None
    except SettingsError as error:
        raise InvalidSettings(list(_not_json(in_environment)) or [f"environment: {error}"]) from None
    return Settings.model_validate(layered.model_dump(exclude_unset=True))


@cache
def setting_names() -> tuple[str, ...]:
    """Return the dotted names of all settings, in the order of the model."""
    return tuple(_leaves(Settings))


def environment_name(setting: str) -> str:
    """Return the environment variable of a setting: ``proxy.port`` → ``ELANUS_PROXY__PORT``."""
    return ENV_PREFIX + setting.replace(".", ENV_DELIMITER).upper()


def _leaves(model: type[Section], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from _leaves(inner, f"{prefix}{name}.")
        else:
            yield prefix + name


@cache
def _tables(model: type[Section] = Settings, prefix: str = "") -> tuple[str, ...]:
    """Return the beginnings of the names in settings that hold any names, such as
    ``cluster.node_labels.``."""
    found: list[str] = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            found += _tables(inner, f"{prefix}{name}.")
        elif get_origin(inner) is dict:
            found.append(f"{prefix}{name}.")
    return tuple(found)


def _layered_model(path: Path | None) -> type[Settings]:
    """Return a `Settings` class that pydantic-settings fills from the layers when it is instantiated."""

    class Layered(Settings, BaseSettings):
        model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, env_nested_delimiter=ENV_DELIMITER)

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del dotenv_settings, file_secret_settings  # sources that Elanus does not offer
            file = (YamlConfigSettingsSource(settings_cls, yaml_file=path),) if path else ()
            return (init_settings, env_settings, *file)

    return Layered


def _config_of_environment() -> Path | None:
    named = os.environ.get(CONFIG_VARIABLE)
    return Path(named) if named else None


def _keys_of_file(path: Path) -> dict[str, str]:
    """Map the dotted name of every key in the file to the name as written."""
    import yaml  # here: most servers have no such file, and start sooner without it

    try:
        text = path.read_text(encoding="utf-8")
        content = yaml.safe_load(text)
    except OSError as error:
        raise InvalidSettings([f"{path}: cannot be read: {error.strerror}"]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidSettings([f"{path}: is not YAML: {error}"]) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InvalidSettings([f"{path}: holds a {type(content).__name__}, not settings by name"])
    if twice := list(_named_twice(yaml.compose(text, Loader=yaml.SafeLoader))):
        raise InvalidSettings(
            f"{path}: {name} is there twice: only the last one would count" for name in twice
        )
    if with_dots := [str(key) for key in content if "." in str(key)]:
        raise InvalidSettings(
            f"{path}: {name} is written with a dot: in a file it is {name.rpartition('.')[2]} in the section "
            f"{name.rpartition('.')[0]}, as `elanus settings` shows"
            for name in with_dots
        )
    return {name: name for name in _dotted(content)}


def _named_twice(node: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names that are written more than once, which YAML forbids and its parser does not
    notice. ``node``: of the parser's tree."""
    if node.id != "mapping":
        return
    seen: set[str] = set()
    for key, value in node.value:
        if key.value in seen:
            yield f"{prefix}{key.value}"
        seen.add(key.value)
        if not prefix:  # settings are in sections, which are in none
            yield from _named_twice(value, f"{key.value}.")


def _dotted(content: Mapping[object, object], prefix: str = "") -> Iterator[str]:
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from _dotted(value, name + ".")
        else:
            yield name


def _keys_of_environment() -> dict[str, str]:
    """Map the dotted name of every setting in the environment to its variable."""
    ours = [name for name in os.environ if name.startswith(ENV_PREFIX) and name not in _NO_SETTINGS]
    return {name[len(ENV_PREFIX) :].lower().replace(ENV_DELIMITER, "."): name for name in ours}


def _not_json(in_environment: Mapping[str, str]) -> Iterator[str]:
    """Name the variables whose text is not JSON, of settings that hold any names."""
    for key, variable in in_environment.items():
        if f"{key}." not in _tables():
            continue
        try:
            json.loads(os.environ[variable])
        except ValueError:
            yield f'environment: {key}: what {variable} holds is no JSON; write {{"name": "value"}}'


def _unknown(keys: Mapping[str, str], source: str) -> Iterator[str]:
    known = setting_names()
    in_environment = source == "environment"
    for key, written in keys.items():
        if key in known or key.startswith(_tables()):
            continue
        inside = [name for name in known if name.startswith(key + ".")]
        if inside:
            example = environment_name(inside[0]) if in_environment else inside[0]
            yield f"{source}: {written} is a section, not a setting; set what is in it, such as {example}"
            continue
        yield f"{source}: unknown setting {written}{_hint(key, known, in_environment)}"


def _hint(key: str, known: Iterable[str], in_environment: bool) -> str:
    """Suggest the setting that was probably meant: one spelled similarly, or the same name elsewhere."""
    names = tuple(known)
    close = get_close_matches(key, names, n=1, cutoff=0.75)
    if not close:
        by_last = {name.rpartition(".")[2]: name for name in reversed(names)}
        last = get_close_matches(key.rpartition(".")[2], by_last, n=1, cutoff=0.8)
        close = [by_last[name] for name in last]
    if not close:
        return " (all settings: `elanus settings`)"
    return f"; did you mean {environment_name(close[0]) if in_environment else close[0]}?"


def _nested(flags: Mapping[str, object]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in flags.items():
        *sections, key = name.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
        branch[key] = value
    return tree


def _explain(error: ErrorDetails, sources: Iterable[tuple[Mapping[str, object], str]]) -> str:
    """Describe an error in one line: the source of the value, the setting, what is wrong with it."""
    name = ".".join(str(part) for part in error["loc"])
    message = error["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if not name:
        return f"settings: {message}"  # concerns several sections, which may have several sources
    origin = next((label for keys, label in sources if _sets(keys, name)), "settings")
    is_shown = error["type"] != "value_error" and error["loc"][-1] not in SECRETS
    shown = f" is {error['input']!r}: {message}" if is_shown else f": {message}"
    return f"{origin}: {name}{shown}"


def _sets(keys: Iterable[str], name: str) -> bool:
    """Whether a layer sets the named setting or, for an error of a whole section, any part of it."""
    return any(key == name or key.startswith(name + ".") for key in keys)
