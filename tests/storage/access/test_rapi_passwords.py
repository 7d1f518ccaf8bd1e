"""Secrets of users: each scheme matches its password and no other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from ganger.storage.access import rapi_passwords, rapi_settings

# Test vectors of others: of crypt_blowfish, and of the reference program of Argon2.
VECTORS = [
    ("U*U", "{BCRYPT}$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"),
    ("U*U", "{BCRYPT}$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"),
    (
        "password",
        (
            "{ARGON2ID}$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ"
            "$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
        ),
    ),
]
PASSWORD = "Käse und Brot"


@pytest.fixture(autouse=True)
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapi_settings, "ARGON2_PASSES", 1)
    monkeypatch.setattr(rapi_settings, "ARGON2_KIBIBYTES", 64)
    monkeypatch.setattr(rapi_settings, "BCRYPT_ROUNDS", 4)


def ha1(name: str, password: str) -> str:
    return hashlib.md5(f"{name}:Ganeti Remote API:{password}".encode()).hexdigest()


SECRETS: dict[str, Callable[[], str]] = {
    "argon2id": lambda: rapi_passwords.hashed(PASSWORD),
    "bcrypt": lambda: rapi_passwords.hashed(PASSWORD, "bcrypt"),
    "HA1": lambda: "{HA1}" + ha1("joe", PASSWORD),
    "HA1 in capitals": lambda: "{Ha1}" + ha1("joe", PASSWORD).upper(),
    "clear": lambda: PASSWORD,
    "marked as clear": lambda: "{cleartext}" + PASSWORD,
}


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_matches_its_password_and_no_other(kind: str) -> None:
    secret = SECRETS[kind]()
    assert rapi_passwords.problem(secret) == ""
    assert rapi_passwords.matches(secret, "joe", PASSWORD)
    for other in ("", PASSWORD[:-1], PASSWORD + "x", PASSWORD.lower(), secret):
        assert other == secret == PASSWORD or not rapi_passwords.matches(secret, "joe", other)


@pytest.mark.parametrize(("password", "secret"), VECTORS)
def test_hashes_of_other_programs_match(password: str, secret: str) -> None:
    assert rapi_passwords.problem(secret) == ""
    assert rapi_passwords.matches(secret, "joe", password)
    assert not rapi_passwords.matches(secret, "joe", password + "x")


def test_a_secret_of_ganeti_is_for_one_name() -> None:
    assert not rapi_passwords.matches("{HA1}" + ha1("joe", PASSWORD), "jim", PASSWORD)


def test_two_hashes_of_one_password_differ() -> None:
    for scheme in rapi_passwords.NEW_SCHEMES:
        assert rapi_passwords.hashed("x", scheme) != rapi_passwords.hashed("x", scheme)


@pytest.mark.parametrize("secret", ["{MD5}x", "{}x", "{SSHA}x", "{x"])
def test_an_unknown_scheme_never_matches(secret: str) -> None:
    assert not rapi_passwords.is_known(secret)
    assert rapi_passwords.problem(secret) == ""
    for password in ("x", secret, ""):
        assert not rapi_passwords.matches(secret, "joe", password)


def test_who_reads_the_file_can_use_clear_secrets_and_plain_md5() -> None:
    assert [rapi_passwords.is_readable(make()) for make in SECRETS.values()] == [
        *[False] * 2,
        *[True] * 4,
    ]
    assert [rapi_passwords.is_costly(make()) for make in SECRETS.values()] == [
        *[True] * 2,
        *[False] * 4,
    ]


@pytest.mark.parametrize(
    ("secret", "expected"),
    [
        ("{HA1}" + "g" * 32, "{HA1} needs 32 hexadecimal digits"),
        ("{bcrypt}$2b$12$short", "{BCRYPT} needs a hash"),
        ("{BCRYPT}$2b$31$" + "a" * 53, "{BCRYPT} may have a cost of at most 15"),
        ("{ARGON2ID}$argon2i$v=19$m=64,t=1,p=1$c2FsdHNhbHQ$" + "a" * 43, "{ARGON2ID} needs a hash"),
        (
            "{ARGON2ID}$argon2id$v=19$m=4194305,t=1,p=1$c2FsdHNhbHQ$" + "a" * 43,
            "{ARGON2ID} may have m * t of at most 4194304",
        ),
        ("{ARGON2ID}", "{ARGON2ID} needs a hash"),
    ],
)
def test_a_hash_that_nothing_can_be_compared_with_is_a_problem(secret: str, expected: str) -> None:
    assert rapi_passwords.problem(secret).startswith(expected)


@pytest.mark.parametrize("secret", ["{BCRYPT}$2b$12$" + "a" * 53, "{BCRYPT}$2b$01$" + "a" * 53])
def test_what_only_looks_like_a_hash_never_matches(secret: str) -> None:
    assert not rapi_passwords.matches(secret, "joe", PASSWORD)
    assert not rapi_passwords.matches(secret, "joe", "")


def test_the_stand_in_is_a_hash_of_the_same_cost_that_nothing_matches() -> None:
    secret = rapi_passwords.unmatched()
    assert rapi_passwords.problem(secret) == ""
    cost = rapi_passwords.hashed("x").split("$")[:4]
    assert secret.split("$")[:4] == cost
    assert not rapi_passwords.matches(secret, "joe", "x")


def test_what_bcrypt_ignores_is_ignored() -> None:
    """Its hashes know 72 bytes, also those that others have made."""
    secret = rapi_passwords.hashed("x" * 80, "bcrypt")
    assert rapi_passwords.matches(secret, "joe", "x" * 72 + "else")
    assert not rapi_passwords.matches(secret, "joe", "x" * 71)
