"""A server of the OpenAI API that answers as a test tells it to, however wrong."""
import json
import socket
import threading


def event(text=None, **choice):
    delta = {} if text is None else {"content": text}
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, **choice}]}).encode() + b"\n\n"


def stream(*events, head=b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"):
    return head + b"".join(events)


def whole(status, body, kind="application/json"):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


def answer(text):
    """A proper stream that says text word by word."""
    words = [event(word + " ") for word in text.split(" ")[:-1]] + [event(text.split(" ")[-1])]
    return stream(*words, event(finish_reason="stop"), b"data: [DONE]\n\n")


class FakeServer:
    """answers: one for each chat request, the last of them again and again: bytes, or a function of the connection.

    requests: the bodies that came; heads: their heads; left: set once a client has gone while a function held it."""

    def __init__(self, *answers, models=("fake-model",)):
        self.answers, self.models = list(answers), models
        self.requests, self.heads = [], []
        self.left = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            connection.settimeout(20)
            try:
                head, body = self._read(connection)
                if head.startswith("GET /v1/models"):
                    models = self.models
                    connection.sendall(models if isinstance(models, bytes) else whole(200, {"data": [{"id": name} for name in models]}))
                    return
                if head.startswith("GET "):
                    connection.sendall(whole(404, {"error": {"message": "no such route"}}))
                    return
                self.heads.append(head)
                self.requests.append(json.loads(body))
                chosen = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                chosen(connection) if callable(chosen) else connection.sendall(chosen)
            except OSError:
                pass

    @staticmethod
    def _read(connection):
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(65536)
        head, _, body = received.partition(b"\r\n\r\n")
        length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
        while len(body) < length:
            body += connection.recv(65536)
        return head.decode(), body

    def until_the_client_leaves(self, first):
        """An answer that sends first and then nothing more; left is set when the client has gone."""
        def hold(connection):
            connection.sendall(first)
            if connection.recv(1) == b"":
                self.left.set()
        return hold
