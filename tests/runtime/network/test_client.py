"""Clients under a rule, with real servers, real sockets and a resolver that the test controls."""

import datetime as dt
import gzip
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import httpcore2
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pokayoke import ConfinedUrl, Guard, ToolCall, UrlRefused, UrlRule, UsageError, tool, urls
from pokayoke.runtime.network import backend, limits
from pokayoke.runtime.network.resolve import MOST_ADDRESSES, check_addresses

LOCAL = {"schemes": ("http",), "addresses": ("loopback",)}


class Site:
    """A server on this machine: paths with their answers, and what it was asked."""

    def __init__(self, server):
        self.port = server.server_address[1]
        self.asked = []
        self.answers = {}
        self.rest = b""  # of the latest request, behind its headers


def answer(status="200 OK", body=b"", **headers):
    """The bytes of a response."""
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


@contextmanager
def serve(context=None, address=("127.0.0.1", 0)):
    """A real server in threads; a callable answer gets the socket."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            try:
                if context is None:
                    self.talk(self.request)
                else:
                    with context.wrap_socket(self.request, server_side=True) as sock:
                        self.talk(sock)
            except OSError:
                pass  # the client has closed the connection

        def talk(self, sock):
            head = b""
            while b"\r\n\r\n" not in head:
                got = sock.recv(65_536)
                if not got:
                    return
                head += got
            head, _, site.rest = head.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            path = lines[0].split(" ")[1]
            site.asked.append((path, dict(line.lower().split(": ", 1) for line in lines[1:])))
            found = site.answers.get(path, answer("404 Not Found"))
            found(sock) if callable(found) else sock.sendall(found)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True

    with Server(address, Handler) as server:
        site = Site(server)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield site
        server.shutdown()
        thread.join()


@pytest.fixture
def site():
    """A plain server."""
    with serve() as one:
        yield one


def names(**known):
    """A resolver that knows some names (with _ for their dots), and counts how often it is asked."""

    def resolve(host, port):
        resolve.asked.append(host)
        found = known.get(host.replace(".", "_"))
        if found is None:
            raise socket.gaierror(-2, "Name or service not known")
        return found.pop(0) if isinstance(found[0], list) else found

    resolve.asked = []
    return resolve


class Both:
    """The same request by the synchronous and the asynchronous client."""

    def __init__(self, kind):
        self.kind = kind

    async def get(self, rule, url, *, method="GET", content=None, headers=None, **options):
        """Send one request and return the response, its body read."""
        if self.kind == "sync":
            with urls.open_client(rule, **options) as client:
                return client.request(method, url, content=content, headers=headers)
        async with urls.open_async_client(rule, **options) as client:
            return await client.request(method, url, content=content, headers=headers)


@pytest.fixture(params=["sync", "async"])
def client(request):
    """Both kinds of clients."""
    return Both(request.param)


def rule(site, **fields):
    """A rule for this machine's server."""
    return UrlRule(**{**LOCAL, "ports": (site.port,), **fields})


async def test_an_allowed_url_is_fetched(client, site):
    """The server sees the path and the host of the URL, and the answer arrives with its headers."""
    site.answers["/a?b=1"] = answer(body=b"hello", Content_Type="text/plain")
    got = await client.get(rule(site), f"http://127.0.0.1:{site.port}/a?b=1#c")
    assert (got.status_code, got.text, got.headers["content-type"]) == (200, "hello", "text/plain")
    path, headers = site.asked[0]
    assert (path, headers["host"], headers["accept-encoding"]) == ("/a?b=1", f"127.0.0.1:{site.port}", "gzip")


async def test_a_loopback_url_is_refused_without_a_rule(client, site):
    """The same URL under a rule that does not name loopback addresses reaches nobody."""
    with pytest.raises(UrlRefused) as refused:
        await client.get(UrlRule(schemes=("http",), ports=(site.port,)), f"http://127.0.0.1:{site.port}/")
    assert refused.value.finding.data["rule"] == "address"
    assert site.asked == []


async def test_a_name_is_connected_at_its_checked_address(client, site):
    """The name is resolved once, the connection goes to that address, and the Host header keeps the name."""
    site.answers["/"] = answer(body=b"hello")
    resolve = names(shop_example_com=["127.0.0.1"])
    got = await client.get(rule(site), f"http://shop.example.com:{site.port}/", resolve=resolve)
    assert (got.text, resolve.asked) == ("hello", ["shop.example.com"])
    assert site.asked[0][1]["host"] == f"shop.example.com:{site.port}"


async def test_a_name_that_leads_inside_is_refused(client, site):
    """A public name with a private address is refused before a connection, with the kind of the address."""
    resolve = names(shop_example_com=["127.0.0.1"])
    with pytest.raises(UrlRefused) as refused:
        await client.get(rule(site, addresses=()), f"http://shop.example.com:{site.port}/", resolve=resolve)
    assert (refused.value.finding.code, refused.value.finding.data["rule"]) == ("address_refused", "loopback")
    assert "127.0.0.1" not in refused.value.finding.hint
    assert site.asked == []


async def test_a_name_that_answers_otherwise_the_second_time_leads_nowhere_else(client, site):
    """DNS rebinding: the answer that was checked is the address that is connected to; there is no second question."""
    site.answers["/"] = answer(body=b"checked")
    with serve(address=("127.0.0.2", site.port)) as inside:
        inside.answers["/"] = answer(body=b"secret")
        resolve = names(shop_example_com=[["127.0.0.1"], ["127.0.0.2"]])
        got = await client.get(rule(site), f"http://shop.example.com:{site.port}/", resolve=resolve)
        assert (got.text, resolve.asked, inside.asked) == ("checked", ["shop.example.com"], [])
        # The resolver does answer otherwise: the next request asks anew, and goes where it was told.
        got = await client.get(rule(site), f"http://shop.example.com:{site.port}/", resolve=resolve)
        assert got.text == "secret"


async def test_a_name_that_turns_inside_before_the_next_request_is_refused(client, site):
    """Each request resolves and checks anew: a second request to a name that now leads inside is refused."""
    site.answers["/"] = answer(body=b"hello")
    site.answers["/again"] = answer("302 Found", Location="/")
    resolve = names(shop_example_com=[["127.0.0.1"], ["169.254.169.254"]])
    with pytest.raises(UrlRefused) as refused:
        await client.get(rule(site), f"http://shop.example.com:{site.port}/again", resolve=resolve)
    assert refused.value.finding.data["rule"] == "metadata"
    assert [path for path, _ in site.asked] == ["/again"]


@pytest.mark.parametrize(
    ("addresses", "kind"),
    [
        (["127.0.0.1", "10.0.0.1"], "private"),
        (["::ffff:169.254.169.254"], "metadata"),
        (["fe80::1%lo"], "link_local"),
        (["no address"], "unreadable"),
        (["127.0.0.1"] * (MOST_ADDRESSES + 1), "many"),
    ],
)
async def test_one_refused_address_refuses_the_name(client, site, addresses, kind):
    """Every address of a name is checked, in every spelling, before any of them is connected to."""
    resolve = names(shop_example_com=addresses)
    with pytest.raises(UrlRefused) as refused:
        await client.get(rule(site), f"http://shop.example.com:{site.port}/", resolve=resolve)
    assert refused.value.finding.data["rule"] == kind
    assert site.asked == []


async def test_the_next_address_is_tried(client, site):
    """Where nobody listens at the first address, the second is connected to."""
    site.answers["/"] = answer(body=b"hello")
    got = await client.get(
        rule(site), f"http://a.example.com:{site.port}/", resolve=names(a_example_com=["127.0.0.2", "127.0.0.1"])
    )
    assert got.text == "hello"


async def test_dead_addresses_share_the_time(client, site, monkeypatch):
    """Each of three addresses that do not answer gets its share, so a request lasts no longer than with one."""
    passed, tried = [0.0], []

    def wait_in_vain(address, timeout):
        tried.append((address, timeout))
        passed[0] += timeout
        raise httpcore2.ConnectTimeout

    async def wait_in_vain_async(backend, host, port, seconds, *rest):
        wait_in_vain(host, seconds)

    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: passed[0]))
    monkeypatch.setattr(
        httpcore2.SyncBackend, "connect_tcp", lambda inner, host, port, timeout, *rest: wait_in_vain(host, timeout)
    )
    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", wait_in_vain_async)
    addresses = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
    with pytest.raises(httpx2.ConnectTimeout):
        await client.get(
            rule(site), f"http://a.example.com:{site.port}/", resolve=names(a_example_com=addresses),
            limits=urls.HttpLimits(seconds=3.0),
        )  # fmt: skip
    assert tried == [(address, pytest.approx(1.0)) for address in addresses]


async def test_a_name_without_address_is_a_connect_error(client, site):
    """A name that does not exist is no refusal: it is httpx2's own error."""
    for resolve in (names(), lambda host, port: []):
        with pytest.raises(httpx2.ConnectError):
            await client.get(rule(site), f"http://no.example.com:{site.port}/", resolve=resolve)


async def test_an_error_of_the_resolver_is_raised(client, site):
    """A resolver that is broken in another way is not taken for a missing name."""

    def resolve(host, port):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await client.get(rule(site), f"http://a.example.com:{site.port}/", resolve=resolve)


async def test_a_redirect_under_the_rule_is_followed(client, site):
    """A redirect to an allowed URL is followed, and the method and history are those of httpx2."""
    site.answers["/a"] = answer("302 Found", Location="/b")
    site.answers["/b"] = answer(body=b"there")
    got = await client.get(rule(site), f"http://127.0.0.1:{site.port}/a")
    assert (got.text, [one.status_code for one in got.history]) == ("there", [302])


@pytest.mark.parametrize(
    ("location", "broken"),
    [
        ("http://127.0.0.1:{port}/secret", "address"),
        ("http://localhost:{port}/secret", "inside_name"),
        ("http://2130706433:{port}/secret", "odd_address"),
        ("http://[::ffff:127.0.0.1]:{port}/secret", "odd_address"),
        ("http://169.254.169.254:{port}/latest/meta-data/", "address"),
        ("//10.0.0.1:{port}/secret", "address"),
        ("http://user@shop.example.com:{port}/secret", "user"),
        ("https://shop.example.com/secret", "scheme"),
        ("http://shop.example.com:22/secret", "port_outside"),
        ("ftp://shop.example.com/secret", "scheme"),
        ("http://inside.example.com:{port}/secret", "loopback"),
    ],
)
async def test_a_redirect_out_of_the_rule_is_refused(client, site, location, broken):
    """Each hop is checked like the first URL, by its text and by its addresses: a public page cannot lead inside."""
    port = site.port
    # The test's own server stands in for a public one: its address is given out as public by the rule's names.
    site.answers["/"] = answer("302 Found", Location=location.format(port=port))
    resolve = names(shop_example_com=["127.0.0.1"], inside_example_com=["127.0.0.1"])
    allowed = UrlRule(schemes=("http",), ports=(port,))

    def only_the_shop_is_public(host, number):
        return ["127.0.0.1"] if host == "shop.example.com" else resolve(host, number)

    real = backend.check_addresses

    def check(host, found, one):
        return tuple(found) if host == "shop.example.com" else real(host, found, one)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "check_addresses", check)
        with pytest.raises(UrlRefused) as refused:
            await client.get(allowed, f"http://shop.example.com:{port}/", resolve=only_the_shop_is_public)
    assert refused.value.finding.data["rule"] == broken
    assert [path for path, _ in site.asked] == ["/"]


async def test_a_redirect_inside_is_followed_where_the_rule_says_so(client, site):
    """The same redirect to 127.0.0.1 is followed under a rule that names loopback addresses."""
    site.answers["/"] = answer("302 Found", Location=f"http://127.0.0.1:{site.port}/secret")
    site.answers["/secret"] = answer(body=b"allowed")
    got = await client.get(rule(site), f"http://a.example.com:{site.port}/", resolve=names(a_example_com=["127.0.0.1"]))
    assert got.text == "allowed"


async def test_redirects_are_counted(client, site):
    """A chain longer than its limit ends with httpx2's own error."""
    site.answers["/"] = answer("302 Found", Location="/")
    with pytest.raises(httpx2.TooManyRedirects):
        await client.get(rule(site), f"http://127.0.0.1:{site.port}/", limits=urls.HttpLimits(redirects=2))
    assert len(site.asked) == 3


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (answer(body=b"x" * 1_001), "response_too_large"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", "response_too_large"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5_000, "response_too_large"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"3e8\r\n" + b"x" * 1_000 + b"\r\n1\r\nx\r\n0\r\n\r\n", "response_too_large"),
        (answer(body=gzip.compress(b"\0" * 900_000), Content_Encoding="gzip"), "response_too_large"),
        (answer(body=b"no gzip", Content_Encoding="gzip"), "response_encoding"),
        (answer(body=b"x", Content_Encoding="br"), "response_encoding"),
    ],
)  # fmt: skip
async def test_a_body_beyond_its_limit_is_refused(client, site, found, code):
    """Bytes are counted as they come, after decompression too; headers are not believed."""
    site.answers["/"] = found
    with pytest.raises(UrlRefused) as refused:
        await client.get(rule(site), f"http://127.0.0.1:{site.port}/", limits=urls.HttpLimits(max_bytes=1_000))
    assert refused.value.finding.code == code


async def test_a_compressed_body_is_read(client, site):
    """A gzip arrives decompressed, without the headers that described it."""
    site.answers["/"] = answer(body=gzip.compress(b"hello"), Content_Encoding="gzip")
    got = await client.get(rule(site), f"http://127.0.0.1:{site.port}/")
    assert (got.text, "content-encoding" in got.headers) == ("hello", False)


def trickle(before, piece):
    """An answer that never ends: a byte now and then."""

    def send(sock):
        sock.sendall(before)
        for _ in range(2_000):
            sock.sendall(piece)
            time.sleep(0.02)

    return send


SLOW = [
    trickle(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x"),
    trickle(b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
    trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    lambda sock: time.sleep(40),
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("found", SLOW, ids=["headers", "body", "interim", "silent"])
async def test_a_slow_answer_ends_by_its_deadline(client, site, found):
    """The time holds for the whole request, whatever comes in small pieces in between."""
    site.answers["/"] = found
    with pytest.raises(httpx2.TimeoutException):
        await client.get(rule(site), f"http://127.0.0.1:{site.port}/", limits=urls.HttpLimits(seconds=0.4))


@pytest.mark.timeout(20)
async def test_the_time_holds_for_all_redirects(client, site):
    """A chain of slow redirects has one deadline."""

    def slowly(sock):
        time.sleep(0.2)
        sock.sendall(answer("302 Found", Location="/"))

    site.answers["/"] = slowly
    limits = urls.HttpLimits(seconds=0.5, redirects=100)
    with pytest.raises(httpx2.TimeoutException):
        await client.get(rule(site), f"http://127.0.0.1:{site.port}/", limits=limits)
    assert len(site.asked) <= 3


@pytest.mark.timeout(20)
async def test_a_slow_resolver_ends_by_the_deadline(client, site):
    """A resolver that hangs holds nobody longer than the limit."""
    gate = threading.Event()

    def resolve(host, port):
        gate.wait(10)
        return ["127.0.0.1"]

    with pytest.raises(httpx2.ConnectTimeout):
        await client.get(
            rule(site), f"http://a.example.com:{site.port}/", resolve=resolve, limits=urls.HttpLimits(seconds=0.3)
        )
    gate.set()


async def test_a_body_is_sent(client, site):
    """A request with a body reaches the server, in pieces."""
    got = []

    def take(sock):
        sock.settimeout(5)
        got.append(site.rest)
        while sum(map(len, got)) < 20_000:
            got.append(sock.recv(65_536))
        sock.sendall(answer(body=b"taken"))

    site.answers["/"] = take
    said = await client.get(rule(site), f"http://127.0.0.1:{site.port}/", method="POST", content=b"x" * 20_000)
    assert said.text == "taken"


async def test_headers_cannot_name_another_host(client, site):
    """The Host header is the host of the URL, whatever a tool's author or a model put into the headers."""
    site.answers["/"] = answer(body=b"hello")
    headers = {"Host": "evil.test", "Accept-Encoding": "br", "X-Own": "kept"}
    await client.get(rule(site), f"http://127.0.0.1:{site.port}/", headers=headers)
    sent = site.asked[0][1]
    assert (sent["host"], sent["accept-encoding"], sent["x-own"]) == (f"127.0.0.1:{site.port}", "gzip", "kept")


async def test_proxies_of_the_environment_are_not_used(client, site, monkeypatch):
    """A proxy would resolve names by itself, so what the environment says about one does not count."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    site.answers["/"] = answer(body=b"hello")
    assert (await client.get(rule(site), f"http://127.0.0.1:{site.port}/")).text == "hello"


@pytest.mark.parametrize("option", ["mounts", "proxy", "transport", "trust_env", "verify", "max_redirects"])
def test_an_option_that_leads_around_the_rule_is_an_error(option):
    """What the rule and its limits decide cannot be given a second time."""
    for open_one in (urls.open_client, urls.open_async_client):
        with pytest.raises(UsageError, match=option):
            open_one(UrlRule(), **{option: None})


async def test_hooks_of_the_caller_are_called(client, site):
    """Other options of httpx2 work: hooks, headers."""
    seen = []
    site.answers["/"] = answer(body=b"hello")

    async def anote(one):
        seen.append(type(one).__name__)

    hook = anote if client.kind == "async" else lambda one: seen.append(type(one).__name__)
    await client.get(rule(site), f"http://127.0.0.1:{site.port}/", event_hooks={"request": [hook], "response": [hook]})
    assert seen == ["Request", "Response"]


def test_a_transport_stands_alone(site):
    """A transport works in a client of one's own, with a deadline for each request."""
    site.answers["/"] = answer(body=b"hello")
    with httpx2.Client(transport=urls.CheckedTransport(rule(site))) as own:
        assert own.get(f"http://127.0.0.1:{site.port}/").text == "hello"
        with pytest.raises(UrlRefused):
            own.get("http://10.0.0.1/")


def make_certificate(tmp_path, name):
    """A certificate for a name, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder().subject_name(who).issuer_name(who).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    file = tmp_path / f"{name}.pem"
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return file


async def test_tls_names_and_verifies_the_host(client, tmp_path):
    """The connection goes to an address, and TLS still asks for the name and checks it: another name is no match."""
    file, asked = make_certificate(tmp_path, "shop.example.com"), []
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    server.sni_callback = lambda sock, name, context: asked.append(name)
    trusted = ssl.create_default_context(cafile=str(file))
    resolve = names(shop_example_com=["127.0.0.1"], other_example_com=["127.0.0.1"])
    with serve(server) as site:
        site.answers["/"] = answer(body=b"hello")
        allowed = UrlRule(ports=(site.port,), addresses=("loopback",))
        got = await client.get(allowed, f"https://shop.example.com:{site.port}/", resolve=resolve, ssl_context=trusted)
        assert (got.text, asked) == ("hello", ["shop.example.com"])
        with pytest.raises(httpx2.ConnectError, match="certificate"):
            await client.get(allowed, f"https://other.example.com:{site.port}/", resolve=resolve, ssl_context=trusted)


def test_a_tool_fetches_through_the_url_it_gets(site):
    """Through the guard: an allowed URL is fetched, a redirect out of the rule fails the call and reaches nobody."""
    site.answers["/"] = answer(body=b"hello")
    site.answers["/out"] = answer("302 Found", Location="http://169.254.169.254/")

    @tool(effect="read", output="text", urls={"url": rule(site)})
    def fetch(url: ConfinedUrl) -> str:
        """Fetch a page."""
        with url.open_client() as http:
            return http.get(url).text

    with Guard([fetch]).run() as run:
        assert run.call(ToolCall("a", "fetch", {"url": f"http://127.0.0.1:{site.port}/"})).value == "hello"
        failed = run.call(ToolCall("b", "fetch", {"url": f"http://127.0.0.1:{site.port}/out"}))
        assert (failed.status, failed.findings[0].data["reason"]) == ("failed", "UrlRefused")
        assert run.call(ToolCall("c", "fetch", {"url": "http://10.0.0.1/"})).status == "refused"


async def test_an_asynchronous_tool_fetches_too(site):
    """The asynchronous client of the URL stays under the same rule."""
    site.answers["/"] = answer(body=b"hello")

    @tool(effect="read", output="text", urls={"url": rule(site)})
    async def fetch(url: ConfinedUrl) -> str:
        """Fetch a page."""
        async with url.open_async_client() as http:
            return (await http.get(url)).text

    async with Guard([fetch]).run() as run:
        assert (await run.acall(ToolCall("a", "fetch", {"url": f"http://127.0.0.1:{site.port}/"}))).value == "hello"


def test_a_missing_client_names_the_command():
    """Without httpx2, the import of the module says how to install it, and the front door still opens."""
    code = "import sys; sys.modules['httpx2'] = None; import pokayoke; pokayoke.UrlRule(); import pokayoke.urls"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "MissingExtraError" in done.stderr
    assert "pip install 'pokayoke[urls]'" in done.stderr


def test_the_systems_resolver_finds_this_machine():
    """The default resolver is the system's, and each address is named once."""
    found = urls.resolve_name("localhost", 80)
    assert set(found) <= {"127.0.0.1", "::1"}
    assert len(found) == len(set(found))
    with pytest.raises(UrlRefused):
        check_addresses("localhost", found, UrlRule())
