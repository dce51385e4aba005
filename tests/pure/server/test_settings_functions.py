"""The keys of providers: given in the environment or a file, shown nowhere."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from elanus.server.pipeline_role import pipeline_order
from elanus.server.policies import embedding_policy
from elanus.server.settings import Settings
from elanus.server.settings_load import InvalidSettings, load
from elanus.server.settings_page import as_yaml, markdown

KEY = "sk-secret-key"


def test_a_key_of_the_environment_reaches_its_provider_and_is_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ELANUS_FUNCTION__OPENAI__API_KEY", KEY)
    settings = load(None, {"function.tei.url": "http://tei:8080", "data_dir": str(tmp_path)})
    policy = embedding_policy(settings.function)
    assert policy.providers["openai"].api_key == KEY
    assert policy.providers["tei"].url == "http://tei:8080"
    assert policy.providers["cohere"].api_key == ""
    order = pickle.dumps(pipeline_order(settings, tmp_path)).decode("latin-1")
    shown = (as_yaml(settings), repr(settings), order, repr(policy))
    assert not any(KEY in text for text in shown)
    assert "api_key: '**********'" not in shown[0], "it would be taken for a key when read again"


def test_the_password_of_root_is_not_shown_with_the_settings() -> None:
    shown = as_yaml(load(None, {"proxy.root_password": "correct horse"}))
    assert "correct horse" not in shown
    assert "root_password" not in shown
    assert "root_password: ''" in as_yaml(load(None, {}))


def test_a_file_and_a_key_exclude_each_other() -> None:
    with pytest.raises(InvalidSettings, match="api_key and api_key_file are set"):
        load(None, {"function.openai.api_key": KEY, "function.openai.api_key_file": "f"})


@pytest.mark.parametrize("setting", ["function.openai.api_key", "proxy.root_password"])
def test_an_error_about_a_secret_does_not_repeat_it(setting: str) -> None:
    with pytest.raises(InvalidSettings) as refusal:
        load(None, {setting: 987_654_321})
    assert setting in str(refusal.value)
    assert "987" not in str(refusal.value)


def test_every_setting_of_a_provider_has_its_heading() -> None:
    assert "\n### function.azure_openai.api_key_file\n" in markdown()
    assert Settings().function.client_endpoints
