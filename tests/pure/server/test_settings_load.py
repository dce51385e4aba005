"""Where settings come from, which layer wins, and what is refused in what words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pydantic import ValidationError

from elanus.cli.app import app
from elanus.server.settings import ProxySettings, Settings
from elanus.server.settings_load import InvalidSettings, environment_name, load, setting_names


@pytest.fixture(autouse=True)
def _no_settings_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("ELANUS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "elanus.yaml"


def test_without_any_layer_the_defaults_hold() -> None:
    assert load() == Settings()


def test_layers_are_merged_key_by_key_and_the_closer_one_wins(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text("proxy: {host: 0.0.0.0, port: 1, workers: 2}\nlog: {fsync: no}\n")
    monkeypatch.setenv("ELANUS_PROXY__PORT", "3")
    monkeypatch.setenv("ELANUS_PROXY__WORKERS", "4")
    settings = load(config, {"proxy.workers": "5", "data_dir": Path("here")})
    assert (settings.proxy.host, settings.proxy.port, settings.proxy.workers) == ("0.0.0.0", 3, 5)
    assert settings.log.fsync is False
    assert settings.data_dir == Path("here")
    assert settings.rootcoord == Settings().rootcoord


def test_the_file_is_named_by_the_environment_unless_the_command_line_does(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.yaml"
    config.write_text("proxy: {port: 1}")
    other.write_text("proxy: {port: 2}")
    monkeypatch.setenv("ELANUS_CONFIG", str(other))
    assert load().proxy.port == 2
    assert load(config).proxy.port == 1


def test_an_empty_file_sets_nothing(config: Path) -> None:
    config.write_text("# nothing yet\n")
    assert load(config) == Settings()


def test_what_loads_is_exactly_the_settings_model() -> None:
    """The pipeline process gets them as JSON, and must have the same."""
    settings = load(None, {"proxy.port": 7})
    assert type(settings) is Settings
    assert Settings.model_validate_json(settings.model_dump_json()) == settings


def test_settings_cannot_be_changed() -> None:
    settings = load()
    with pytest.raises(ValidationError):
        settings.proxy.port = 1  # type: ignore[misc]


@pytest.mark.parametrize("setting", setting_names())
def test_every_setting_can_be_set_by_its_variable(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value: object = load()
    for part in setting.split("."):
        value = getattr(value, part)
    monkeypatch.setenv(environment_name(setting), str(value))
    assert load() == Settings()
    # and the variable is really read: empty is no setting's value, but for URLs, which other schemes are not,
    # for certificates, which are of no use alone, and for settings of Spark, of which there need not be any;
    # providers may have no key
    section, _, name = setting.rpartition(".")
    is_of_section = name.startswith("tls_") or name == "spark_conf"
    wrong = "gopher://" if name == "url" else "file.pem" if is_of_section else ""
    wrong = "short" if name == "root_password" else wrong
    monkeypatch.setenv(environment_name(setting), wrong)
    if setting not in {"data_dir", "audit.directory"} and not name.startswith("api_key"):
        with pytest.raises(InvalidSettings, match=rf"{section}: .*{name}" if is_of_section else setting):
            load()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("proxy: {prot: 1}", "unknown setting proxy.prot; did you mean proxy.port?"),
        ("port: 1", "unknown setting port; did you mean proxy.port?"),
        ("proxi: {port: 1}", "unknown setting proxi.port; did you mean proxy.port?"),
        ("colour: red", "unknown setting colour (all settings: `elanus settings`)"),
        ("proxy: {port: {a: 1}}", "unknown setting proxy.port.a; did you mean proxy.port?"),
        ("log:", "log is a section, not a setting; set what is in it, such as log.url"),
        ("proxy: {port: high}", "proxy.port is 'high': input should be a valid integer"),
        ("proxy: {port: 70000}", "proxy.port is 70000: input should be less than or equal to 65535"),
        ("pipeline: {java: gnu}", "pipeline.java is 'gnu': input should be 'auto', 'system' or 'bundled'"),
        ("backpressure: {growing_soft_mb: 9999}", "backpressure: growing_soft_mb (9999) is above"),
        ("proxy: {tls_cert: a.pem}", "proxy: tls_key must be set too"),
        ("cluster: {tls_key: a.key}", "cluster: tls_cert and tls_ca must be set too"),
        ("pipeline: {spark_conf: master x}", "spark_conf has the line 'master x'"),
        ("pipeline: {cores_max: 1}", "pipeline: cores_max must be 0 or at least 2"),
        ("cluster: {tls_server_name: a}", "cluster: tls_server_name needs tls_cert, tls_key and tls_ca"),
        ("proxy: {port: 1}\nlog: {fsync: false}\nproxy: {host: a}", "proxy is there twice"),
        ("proxy:\n  port: 1\n  port: 2", "proxy.port is there twice"),
        ("data_dir: ''", "data_dir: it is empty: name a directory, or . for the current one"),
        ("- 1", "holds a list, not settings by name"),
        ("a: [1", "is not YAML"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(config: Path, text: str, problem: str) -> None:
    config.write_text(text)
    with pytest.raises(InvalidSettings) as caught:
        load(config)
    (line,) = caught.value.problems
    assert line.startswith(f"{config}: ")
    assert problem in line


def test_a_setting_may_hold_any_names(config: Path) -> None:
    config.write_text("cluster: {node_labels: {disk: nvme}}")
    assert load(config).cluster.node_labels == {"disk": "nvme"}


def test_settings_of_two_sections_that_do_not_go_together_are_named(config: Path) -> None:
    config.write_text("datacoord: {assignment_expiration_ms: 6000}")
    with pytest.raises(InvalidSettings, match=r"^settings: datacoord\.assignment.*session\.ttl_s \(5 s\)"):
        load(config)


def test_a_file_that_cannot_be_read_is_named(config: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"elanus\.yaml: cannot be read: No such file"):
        load(config)


def test_a_name_with_a_dot_in_a_file_gets_the_form_that_files_have(config: Path) -> None:
    config.write_text("proxy.port: 31900\nproxy: {host: localhost}\n")
    with pytest.raises(InvalidSettings, match=r"proxy\.port is written .* port in the section proxy"):
        load(config)


def test_unknown_variables_are_refused_with_the_variable_that_was_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ELANUS_PROXY__PROT", "1")
    monkeypatch.setenv("ELANUS_LOG", "{}")
    with pytest.raises(InvalidSettings) as caught:
        load()
    assert sorted(caught.value.problems) == [
        "environment: ELANUS_LOG is a section, not a setting; set what is in it, such as ELANUS_LOG__URL",
        "environment: unknown setting ELANUS_PROXY__PROT; did you mean ELANUS_PROXY__PORT?",
    ]


def test_the_variables_of_options_of_commands_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = set(_variables(typer.main.get_command(app)))
    assert "ELANUS_TOKEN" in variables
    for name in variables:
        monkeypatch.setenv(name, "ada:secret1")
    assert load() == Settings()


def _variables(command: Any) -> Iterator[str]:
    """The variables that set options of a command, or of those below it."""
    for parameter in command.params:
        if isinstance(parameter.envvar, str):
            yield parameter.envvar
    for below in getattr(command, "commands", {}).values():
        yield from _variables(below)


def test_a_table_that_is_no_json_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELANUS_CLUSTER__NODE_LABELS", "nvme")
    with pytest.raises(InvalidSettings) as caught:
        load()
    assert caught.value.problems == (
        "environment: cluster.node_labels: what ELANUS_CLUSTER__NODE_LABELS holds is no JSON; "
        'write {"name": "value"}',
    )


def test_all_problems_are_reported_with_their_sources(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("proxy: {workers: many}")
    monkeypatch.setenv("ELANUS_LOG__FSYNC", "perhaps")
    with pytest.raises(InvalidSettings) as caught:
        load(config, {"metrics.port": -1})
    sources = [line.partition(" is ")[0] for line in caught.value.problems]
    assert sorted(sources) == sorted(
        [f"{config}: proxy.workers", "environment: log.fsync", "command line: metrics.port"]
    )


def test_each_proxy_has_a_port_of_its_own() -> None:
    assert ProxySettings(port=7000, count=3).ports == (7000, 7001, 7002)
    assert ProxySettings(port=0, count=2).ports == (0, 0)
    with pytest.raises(ValidationError, match="choose a lower port"):
        ProxySettings(port=65_535, count=2)
