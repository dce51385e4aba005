"""The certificates that settings name: tried out before anything is served with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from elanus.server.certificates import cluster_security, front_security
from elanus.server.settings import ProxySettings
from elanus.server.settings_services import ClusterSettings
from elanus.server.startup import CannotStart


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("certificates")
    ca = trustme.CA()
    cert, other = ca.issue_cert("node.example"), ca.issue_cert("node.example")
    paths = {name: str(directory / f"{name}.pem") for name in ("cert", "key", "ca", "other_key")}
    cert.cert_chain_pems[0].write_to_path(paths["cert"])
    cert.private_key_pem.write_to_path(paths["key"])
    other.private_key_pem.write_to_path(paths["other_key"])
    ca.cert_pem.write_to_path(paths["ca"])
    return paths


def test_without_certificates_there_is_no_security() -> None:
    assert cluster_security(ClusterSettings()) is None
    assert front_security(ProxySettings()) is None


def test_those_of_a_cluster(files: dict[str, str]) -> None:
    settings = ClusterSettings(
        tls_cert=files["cert"], tls_key=files["key"], tls_ca=files["ca"], tls_server_name="node.example"
    )
    security = cluster_security(settings)
    assert security is not None
    assert security.certificate == Path(files["cert"])
    assert security.server_name == "node.example"


def test_one_of_a_cluster_that_will_not_do(files: dict[str, str]) -> None:
    settings = ClusterSettings(tls_cert=files["cert"], tls_key=files["other_key"], tls_ca=files["ca"])
    with pytest.raises(CannotStart, match=r"cluster\.tls_cert.*other_key\.pem does not belong to"):
        cluster_security(settings)


def test_those_of_a_front(files: dict[str, str]) -> None:
    assert front_security(ProxySettings(tls_cert=files["cert"], tls_key=files["key"])) is not None
    with pytest.raises(CannotStart, match=r"proxy\.tls_cert.*nowhere\.pem cannot be read"):
        front_security(ProxySettings(tls_cert="nowhere.pem", tls_key=files["key"]))
    with pytest.raises(CannotStart, match="are not a certificate and its unencrypted key"):
        front_security(ProxySettings(tls_cert=files["key"], tls_key=files["cert"]))
