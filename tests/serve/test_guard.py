"""Who may ask a server: hosts, origins, tokens; and the headers of what it answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .running import Running, running, small_service
from .test_server import ask

from evergrad.serve.app import PAGE  # isort: skip - after the extra's modules were found


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(small_service(), page=True) as found:
        yield found


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "localhost:80", "[::1]:8000", "LOCALHOST:1", "localhost:"]
)
def test_names_of_the_loopback_are_answered(server: Running, host: str) -> None:
    assert ask(server, "GET", "/healthz", Host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "", "[::", "localhost.x:80",
     "localhost.", "evil.example@localhost", "localhost/x", "localhost?x", "localhost#x",
     "localhost, evil.example", "localhost:80:80", "localhost:a", "[localhost]", "2130706433", "0",
     "127.1", "[::1", "[::1]x"],
)  # fmt: skip
def test_other_hosts_are_not(server: Running, host: str) -> None:
    assert ask(server, "GET", "/healthz", Host=host)[0] in (400, 421)
    assert ask(server, Host=host)[0] in (400, 421)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_other_pages_may_not_ask(server: Running, headers: dict[str, str]) -> None:
    assert ask(server, **headers)[0] == 403
    assert ask(server, Origin=server.url)[0] == 200


def test_a_token_is_demanded() -> None:
    with running(
        small_service(context=48, sequences=1), page=True, token="a-long-secret-token"
    ) as where:
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": ""}):
            assert ask(where, **header)[0] == 401
            assert ask(where, "GET", "/metrics", **header)[0] == 401
        for scheme in ("Bearer", "bearer", "BEARER"):  # a scheme is the same in any case
            assert ask(where, Authorization=f"{scheme} a-long-secret-token")[0] == 200
        for header in (
            "a-long-secret-token",
            "Basic a-long-secret-token",
            "Bearera-long-secret-token",
        ):
            assert ask(where, Authorization=header)[0] == 401
        for path in (*PAGE, "/healthz"):
            assert ask(where, "GET", path)[0] == 200


def test_a_token_may_have_any_characters() -> None:
    token = "ein-langes-Pa\u00dfwort-\u20ac"
    with running(small_service(context=48, sequences=1), token=token) as where:
        sent = f"Bearer {token}".encode().decode("latin-1")  # http.client sends latin-1
        assert ask(where, Authorization=sent)[0] == 200
        assert ask(where, Authorization=sent[:-1])[0] == 401


def test_guesses_of_a_token_are_slowed_down() -> None:
    limits = {"token": "a-long-secret-token", "rate": 0.001, "burst": 3}
    with running(small_service(context=48, sequences=1), **limits) as where:
        found = [ask(where, Authorization=f"Bearer {n}")[0] for n in range(5)]
        assert found == [401, 401, 401, 429, 429]
        assert ask(where, Authorization="Bearer a-long-secret-token")[0] == 429


def test_where_others_can_connect_there_is_a_token() -> None:
    from evergrad.serve.server import limits_for

    assert limits_for("127.0.0.1", None).token is None
    assert limits_for("localhost", None).token is None
    made = limits_for("0.0.0.0", None).token
    assert made is not None and len(made) >= 24 and made != limits_for("0.0.0.0", None).token
    with pytest.raises(ValueError, match="guessed"):
        limits_for("192.168.0.1", "secret")


def test_headers_are_strict(server: Running) -> None:
    for path in ("/", "/healthz", "/nothing", "/chat.js"):
        headers = ask(server, "GET", path)[2]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_the_page_needs_nothing_else(server: Running) -> None:
    for path in PAGE:
        text = ask(server, "GET", path)[1].decode()
        assert "http://" not in text and "https://" not in text and "innerHTML" not in text
    assert "onclick=" not in ask(server, "GET", "/")[1].decode()


def test_the_name_that_a_server_was_given_has_no_case() -> None:
    name = "MyServer"
    with running(small_service(context=48, sequences=1), host=name, token="a" * 20) as where:
        for host in ("myserver:80", "MyServer", "10.0.0.1:8000"):
            assert ask(where, "GET", "/healthz", Host=host)[0] == 200
        assert ask(where, "GET", "/healthz", Host="other")[0] == 421
