"""Static tokens and JSON Web Tokens."""

import base64
import hashlib
import hmac
import http.server
import json
import threading
import time

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from pokayoke.errors import ConfigurationError
from pokayoke.gateway.auth.jwt_tokens import JwtTokens
from pokayoke.gateway.auth.tokens import CallerIdentity, StaticTokens, create_token

ISSUER, AUDIENCE = "https://id.example", "https://gateway.example/mcp"
KEY = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())


def key_set(**keys):
    """Return a JSON Web Key Set of public keys."""
    rows = []
    for ident, key in keys.items():
        kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
        rows.append({**kind.to_jwk(key.public_key(), as_dict=True), "kid": ident, "use": "sig"})
    return {"keys": rows}


def claims(**changed):
    """Return the claims of a valid token, with some changed; None takes one away."""
    now = int(time.time())
    made = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "exp": now + 600,
        "iat": now,
        "scope": "mcp:call mcp:read",
        **changed,
    }
    return {key: value for key, value in made.items() if value is not None}


def token(key=KEY, ident="k1", algorithm="ES256", **changed):
    """Return a signed token."""
    return jwt.encode(claims(**changed), key, algorithm=algorithm, headers={"kid": ident} if ident else None)


@pytest.fixture
def verifier(tmp_path):
    """Return a verifier with one key of a file."""
    (tmp_path / "keys.json").write_text(json.dumps(key_set(k1=KEY)))
    return JwtTokens(issuer=ISSUER, audience=AUDIENCE, keys=str(tmp_path / "keys.json"))


async def test_a_new_token_is_known_by_its_hash(tmp_path):
    """The file holds no token, and only the token proves its subject."""
    text, line = create_token("ada")
    assert text not in line
    (tmp_path / "tokens").write_text(f"# people\n\n{line} mcp:call\n")
    verifier = StaticTokens(tmp_path / "tokens")
    assert await verifier.verify(text) == CallerIdentity("ada", ("mcp:call",))
    assert await verifier.verify(line.rpartition(":")[2]) is None
    assert await verifier.verify("") is None
    assert await verifier.verify("\ud800") is None


async def test_a_token_that_is_taken_out_of_the_file_is_refused(tmp_path):
    """The file is read again when it has changed; while it cannot be read, nobody is known."""
    text, line = create_token("ada")
    (tmp_path / "tokens").write_text(line)
    verifier = StaticTokens(tmp_path / "tokens")
    assert await verifier.verify(text)
    (tmp_path / "tokens").write_text("# nobody\n")
    assert await verifier.verify(text) is None
    (tmp_path / "tokens").unlink()
    assert await verifier.verify(text) is None


@pytest.mark.parametrize("text", ["ada", "ada sha256:12", "ada token", f"a b sha256:{'0' * 64}"])
def test_a_file_that_is_none_of_tokens_is_refused(tmp_path, text):
    """A line that is no such line is named by its number, without its text."""
    (tmp_path / "tokens").write_text(f"\n{text}\n")
    with pytest.raises(ConfigurationError, match="line 2"):
        StaticTokens(tmp_path / "tokens")


async def test_a_valid_web_token_proves_its_subject(verifier):
    """Subject and scopes are read."""
    assert await verifier.verify(token()) == CallerIdentity("ada", ("mcp:call", "mcp:read"))
    assert await verifier.verify(token(ident="")) == CallerIdentity("ada", ("mcp:call", "mcp:read"))
    assert await verifier.verify(token(scope=None, scp=["a"])) == CallerIdentity("ada", ("a",))


PUBLIC = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def unsigned():
    """Return a token of algorithm `none`."""
    parts = [{"alg": "none", "kid": "k1"}, claims()]
    return ".".join(base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in parts) + "."


def confused():
    """Return a token that is signed with the public key as a shared secret."""
    parts = [{"alg": "HS256", "kid": "k1"}, claims()]
    text = ".".join(base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in parts)
    digest = hmac.new(PUBLIC, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    "make",
    [
        lambda: token(exp=int(time.time()) - 60),
        lambda: token(exp=None),
        lambda: token(nbf=int(time.time()) + 600),
        lambda: token(aud="https://other.example"),
        lambda: token(aud=None),
        lambda: token(iss="https://evil.example"),
        lambda: token(iss=None),
        lambda: token(sub=None),
        lambda: token(sub=""),
        lambda: token(key=OTHER),
        lambda: token(ident="k2"),
        lambda: token()[:-4] + "AAAA",
        unsigned,
        confused,
        lambda: "",
        lambda: "a.b.c",
        lambda: "x" * 100_000,
        lambda: "é.é.é",
    ],
    ids=[
        "expired", "no expiry", "not yet", "other audience", "no audience", "other issuer", "no issuer", "no subject",
        "empty subject", "other key", "unknown key", "altered", "alg none", "alg confusion", "empty", "no JSON", "huge",
        "no ASCII",
    ],
)  # fmt: skip
async def test_a_bad_web_token_proves_nothing(verifier, make):
    """Each is refused, without an exception."""
    assert await verifier.verify(make()) is None


async def test_only_the_pinned_algorithms_are_accepted(tmp_path):
    """A valid signature of another algorithm than the pinned one proves nothing."""
    key = rsa.generate_private_key(65537, 2048)
    (tmp_path / "keys.json").write_text(json.dumps(key_set(k1=key)))
    made = {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(tmp_path / "keys.json")}
    text = token(key, algorithm="RS256")
    assert await JwtTokens(**made).verify(text)
    assert await JwtTokens(**made, algorithms=["PS256"]).verify(text) is None
    for algorithm in ("HS256", "none"):
        with pytest.raises(ConfigurationError, match="public key"):
            JwtTokens(**made, algorithms=[algorithm])


class Keys(http.server.BaseHTTPRequestHandler):
    """Serves the keys of its server, and counts how often."""

    def do_GET(self):
        self.server.asked += 1
        body = json.dumps(self.server.keys).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def issuer():
    """Serve keys over HTTP."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keys)
    server.asked, server.keys = 0, key_set(k1=KEY)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


async def test_keys_of_an_address_are_fetched_once(issuer):
    """A hundred good and a hundred unknown keys make one request; afterwards the known keys serve without the issuer."""
    verifier = JwtTokens(issuer=ISSUER, audience=AUDIENCE, keys=f"http://127.0.0.1:{issuer.server_port}/jwks")
    for _ in range(100):
        assert await verifier.verify(token())
        assert await verifier.verify(token(ident="k9")) is None
    assert issuer.asked == 1


@pytest.mark.parametrize("place", ["http://id.example/jwks", "ftp://127.0.0.1/jwks", "/nowhere/keys.json"])
def test_keys_from_a_place_that_others_could_answer_for_are_refused(place):
    """Keys come from a file, an https address, or this machine."""
    with pytest.raises(ConfigurationError):
        JwtTokens(issuer=ISSUER, audience=AUDIENCE, keys=place)
