"""Stands between a decode and a prefill worker, frame by frame, and does harm at a frame that is known beforehand.

Decode workers ask `Proxy.bootstrap` for the route, as they would ask the prefill worker, and are sent through here."""
import json
import socket
import struct
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Frames by docs/wire.md, section 8; each is a length, a type and a version, then its body.
TYPES = {30: "room", 31: "accept", 12: "refuse", 32: "write", 33: "commit", 34: "landed", 35: "abort", 36: "fetch", 17: "beat"}
WRITE_HEADER = 33  # bytes


class Harm:
    """What is done, once, to the nth frame of a kind ("route" is the question for it). action: a function called before
    the frame goes on, or the name of what is done to the frame. at: the byte of its body that "corrupt" means."""

    def __init__(self, frame, action, nth=1, at=None, seconds=0.0):
        self.frame, self.action, self.left, self.at, self.seconds = frame, action, nth, at, seconds
        self.lock = threading.Lock()
        self.done = threading.Event()

    def due(self, frame):
        with self.lock:
            if frame != self.frame or self.left == 0:
                return False
            self.left -= 1
            return self.left == 0


class Proxy:
    def __init__(self, prefill_bootstrap):
        self.prefill_bootstrap = prefill_bootstrap
        self.harm = None
        self.ports = {}  # of prefill's ranks: (listener, pumps) by their own port
        self.lock = threading.Lock()
        self.sockets = set()
        proxy = self

        class Route(BaseHTTPRequestHandler):
            def do_GET(self):
                harm = proxy.harm
                if harm is not None and harm.due("route") and proxy.hurt_route(harm):
                    return
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{proxy.prefill_bootstrap}{self.path}", timeout=10) as answer:
                        route = json.loads(answer.read())
                except OSError as error:
                    return self.send_error(502, str(error))
                for entry in route if isinstance(route, list) else [route]:
                    if "rank_port" in entry:
                        entry["rank_ip"], entry["rank_port"] = "127.0.0.1", proxy.port_for(entry["rank_port"])
                body = json.dumps(route).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *_):
                pass  # whoever asked is gone, as is meant

        self.http = Quiet(("127.0.0.1", 0), Route)
        self.http.daemon_threads = True
        self.bootstrap = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.hang_up()
        for listener in self.ports.values():
            listener.close()

    def hang_up(self):
        """Ends every connection through here."""
        with self.lock:
            sockets, self.sockets = self.sockets, set()
        for each in sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    def moved(self, prefill_bootstrap):
        """The prefill worker has started anew."""
        self.hang_up()
        self.prefill_bootstrap = prefill_bootstrap

    def port_for(self, target):
        with self.lock:
            if target not in self.ports:
                listener = socket.create_server(("127.0.0.1", 0), backlog=64)
                self.ports[target] = listener
                threading.Thread(target=self._accept, args=(listener, target), daemon=True).start()
            return self.ports[target].getsockname()[1]

    def hurt_route(self, harm):
        """True where there is no answer then."""
        if callable(harm.action):
            harm.action()
        harm.done.set()
        if harm.action == "cut":
            threading.Event().wait(30)
        if harm.action == "delay":
            threading.Event().wait(harm.seconds)
        return harm.action in ("cut", "close")

    def _accept(self, listener, target):
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            try:
                callee = socket.create_connection(("127.0.0.1", target), timeout=10)
            except OSError:
                caller.close()
                continue
            callee.settimeout(None)
            with self.lock:
                self.sockets |= {caller, callee}
            cut = threading.Event()
            for pair in ((caller, callee), (callee, caller)):
                for each in pair:
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pump, args=(*pair, cut), daemon=True).start()

    def _pump(self, source, to, cut):
        try:
            while True:
                header = receive(source, 8)
                length, kind, version = struct.unpack("<IHH", header)
                body = receive(source, length)
                if TYPES.get(kind) == "accept":
                    body = self._through_here(body)
                    header = struct.pack("<IHH", len(body), kind, version)
                frame = header + body
                harm = self.harm
                name = TYPES.get(kind, "other")
                if harm is None or not harm.due(name):
                    frames = [frame]
                else:
                    frames = self._hurt(harm, frame, cut)
                if cut.is_set():
                    return  # nothing is read any more, nothing closed: as when a cable is pulled
                for each in frames:
                    to.sendall(each)
        except OSError:
            pass
        if not cut.is_set():
            for each in (source, to):
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def _through_here(self, accept):
        """The prefill worker's ranks, called here instead of where they are: each an endpoint, a coordinate, parts of 16 bytes."""
        count, at, out = struct.unpack_from("<I", accept)[0], 4, accept[:4]
        for _ in range(count):
            length = struct.unpack_from("<I", accept, at)[0]
            endpoint = accept[at + 4:at + 4 + length].decode()
            at += 4 + length
            rest = 8 + 16 * struct.unpack_from("<I", accept, at + 4)[0]
            mine = f"127.0.0.1:{self.port_for(int(endpoint.rsplit(':', 1)[1]))}".encode()
            out += struct.pack("<I", len(mine)) + mine + accept[at:at + rest]
            at += rest
        return out + accept[at:]

    def _hurt(self, harm, frame, cut):
        action = harm.action
        if callable(action):
            action()
            action = "pass"
        if action == "cut":
            cut.set()
        harm.done.set()
        if action == "delay":
            threading.Event().wait(harm.seconds)
        if action == "close":
            raise OSError("hung up on purpose")
        if action == "drop":
            return []
        if action == "duplicate":
            return [frame, frame]
        if action == "truncate":
            return [frame[:-1]]
        if action == "corrupt":
            damaged = bytearray(frame)
            damaged[harm.at if harm.at < 0 else 8 + harm.at] ^= 1
            return [bytes(damaged)]
        return [frame]


def receive(source, length):
    data = bytearray()
    while len(data) < length:
        more = source.recv(length - len(data))
        if not more:
            raise OSError("the end")
        data += more
    return bytes(data)
