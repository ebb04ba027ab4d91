"""Ways to disguise an internal address, and a listener that none of them may reach."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

REFUSED = frozenset({"BlockedAddress"})
NO_ADDRESS = frozenset({"BlockedAddress", "Fatal"})  # or cannot be written down as an address at all
NO_NAME = frozenset({"BlockedAddress", "Fatal", "UnknownHost"})  # or the resolver of the machine does not know it


@dataclass(frozen=True, slots=True)
class Row:
    """A spelling of a host, and the errors that may come of it; `local` when it does lead to this machine."""

    name: str
    host: str
    errors: frozenset[str] = REFUSED
    local: bool = False

    def url(self, port: int) -> str:
        return f"http://{self.host}:{port}/"


ROWS = [
    Row("literal", "127.0.0.1", local=True),
    Row("another loopback", "127.8.7.6"),
    Row("decimal", "2130706433", local=True),
    Row("octal", "0177.0.0.1", NO_ADDRESS),
    Row("octal as one number", "017700000001", local=True),
    Row("hex", "0x7f000001", local=True),
    Row("hex by parts", "0x7f.0x0.0x0.0x1", local=True),
    Row("mixed", "0x7f.0.1", local=True),
    Row("short", "127.1", local=True),
    Row("shorter", "127.0.1", local=True),
    Row("nothing", "0", local=True),
    Row("unspecified", "0.0.0.0", local=True),
    Row("name", "localhost", local=True),
    Row("name in capitals", "LOCALHOST", local=True),
    Row("name with a dot", "localhost.", NO_NAME),
    Row("name below localhost", "horae.localhost", NO_NAME),
    Row("address with a dot", "127.0.0.1.", NO_NAME),
    Row("ideographic dots", "127。0。0。1", NO_ADDRESS),
    Row("circled digits", "①②⑦.⓪.⓪.①", NO_ADDRESS),
    Row("arabic digits", "١٢٧.٠.٠.١", NO_ADDRESS),
    Row("circled letters", "ⓛocalhost", NO_ADDRESS),
    Row("percent encoding", "%31%32%37.0.0.1", NO_ADDRESS),
    Row("encoded NUL", "127.0.0.1%00.example.com", NO_ADDRESS),
    Row("userinfo", "example.com@127.0.0.1", local=True),
    Row("userinfo with a port", "example.com:80@127.0.0.1", local=True),
    Row("backslash", "example.com\\@127.0.0.1", NO_ADDRESS),
    Row("private 10", "10.0.0.1"),
    Row("private 172", "172.16.0.1"),
    Row("private 192", "192.168.1.1"),
    Row("link-local", "169.254.1.1"),
    Row("metadata", "169.254.169.254"),
    Row("metadata in decimal", "2852039166"),
    Row("metadata in hex", "0xa9fea9fe"),
    Row("metadata of Azure", "168.63.129.16"),
    Row("metadata of Oracle", "192.0.0.192"),
    Row("metadata of Alibaba", "100.100.100.200"),
    Row("shared (CGNAT)", "100.64.0.1"),
    Row("benchmarks", "198.18.0.1"),
    Row("examples", "192.0.2.1"),
    Row("multicast", "224.0.0.1"),
    Row("reserved", "240.0.0.1"),
    Row("broadcast", "255.255.255.255"),
    Row("IPv6 loopback", "[::1]", local=True),
    Row("IPv6 loopback in full", "[0:0:0:0:0:0:0:1]", local=True),
    Row("IPv6 unspecified", "[::]", local=True),
    Row("IPv4-mapped", "[::ffff:127.0.0.1]", local=True),
    Row("IPv4-mapped in hex", "[::ffff:7f00:1]", local=True),
    Row("IPv4-mapped metadata", "[::ffff:169.254.169.254]"),
    Row("IPv4-compatible", "[::127.0.0.1]"),
    Row("IPv4-translated", "[::ffff:0:127.0.0.1]"),
    Row("NAT64", "[64:ff9b::127.0.0.1]"),
    Row("NAT64 metadata", "[64:ff9b::a9fe:a9fe]"),
    Row("NAT64 local use", "[64:ff9b:1::7f00:1]"),
    Row("6to4", "[2002:7f00:1::]"),
    Row("6to4 of a public address", "[2002:101:101::1]"),
    Row("6to4 metadata", "[2002:a9fe:a9fe::1]"),
    Row("Teredo", "[2001:0:7f00:1::80ff:fffe]"),
    Row("ISATAP", "[2606:4700::5efe:127.0.0.1]"),
    Row("ISATAP of a global address", "[2606:4700::200:5efe:10.0.0.1]"),
    Row("ISATAP in 6to4", "[2002:101:101::5efe:7f00:1]"),
    Row("6to4 under ISATAP", "[2002:7f00:1::5efe:101:101]"),
    Row("link-local ISATAP", "[fe80::5efe:1.1.1.1]"),
    Row("IPv6 link-local", "[fe80::1]"),
    Row("zone", "[fe80::1%25lo]", NO_NAME),
    Row("zone of loopback", "[::1%25lo]", NO_NAME),
    Row("plain zone", "[fe80::1%lo]", NO_NAME),
    Row("unique local", "[fc00::1]"),
    Row("metadata over IPv6", "[fd00:ec2::254]"),
    Row("site-local", "[fec0::1]"),
    Row("IPv6 multicast", "[ff02::1]"),
    Row("IPv6 examples", "[2001:db8::1]"),
    Row("discard", "[100::1]"),
    Row("next header", "[5f00::1]"),
]

REDIRECTS = [
    "http://127.0.0.1:{port}/",
    "http://2130706433:{port}/",
    "//127.0.0.1:{port}/",
    "http://[::1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://example.com@127.0.0.1:{port}/",
]


@dataclass(slots=True)
class Listener:
    """Records which of this machine's addresses are reached; answers, or redirects elsewhere."""

    port: int = 0
    location: str = ""
    heard: list[str] = field(default_factory=list)
    sockets: list[socket.socket] = field(default_factory=list)

    def serve(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:  # closed
                return
            with connection:
                self.heard.append(str(connection.getsockname()[0]))
                connection.settimeout(5)
                connection.recv(65536)
                connection.sendall(self._reply())

    def _reply(self) -> bytes:
        if self.location:
            return f"HTTP/1.1 302 Found\r\nLocation: {self.location}\r\nContent-Length: 0\r\n\r\n".encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ninside"


@contextmanager
def listener(location: str = "") -> Iterator[Listener]:
    """A listener on all IPv4 and IPv6 addresses of this machine."""
    found = Listener(location=location)
    for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        listening = socket.create_server((host, found.port), family=family)
        found.port = listening.getsockname()[1]
        found.sockets.append(listening)
        threading.Thread(target=found.serve, args=(listening,), daemon=True).start()
    try:
        yield found
    finally:
        for listening in found.sockets:
            listening.shutdown(socket.SHUT_RDWR)
            listening.close()
