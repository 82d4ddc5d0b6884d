"""`shoal chat` on a terminal and through pipes, against real servers and one that misbehaves."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import time

import pytest

from fake_server import FakeServer, answer, event, stream, whole
from server import BINARY, Server


def clean_environment(**more):
    kept = {key: value for key, value in os.environ.items() if key not in ("SHOAL_API_KEY", "OPENAI_API_KEY", "NO_COLOR")}
    return {**kept, **more}


def pipe(url, *flags, text="Hello", seconds=60, **environment):
    return subprocess.run([BINARY, "chat", url, *map(str, flags)], input=text, capture_output=True, text=not isinstance(text, bytes),
                          timeout=seconds, env=clean_environment(**environment))


class Terminal:
    """`shoal chat` on a terminal of its own, 80 columns wide."""

    def __init__(self, url, *flags):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.mode = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen([BINARY, "chat", url, *map(str, flags)], stdin=self.slave, stdout=self.slave, stderr=self.slave,
                                        start_new_session=True, env=clean_environment(NO_COLOR="1"),
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.seen, self.at = "", 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def type(self, text):
        os.write(self.master, text.encode())

    def expect(self, text, seconds=30):
        """Waits until text appears after what was expected last."""
        deadline = time.monotonic() + seconds
        while (found := self.seen.find(text, self.at)) < 0:
            ready, _, _ = select.select([self.master], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come; there is {self.seen[self.at:]!r}"
            self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
        self.at = found + len(text)

    def ask(self, text):
        self.expect("> ")
        self.type(text + "\r")

    def leave(self):
        self.expect("> ")
        self.type("\x04")
        assert self.process.wait(20) == 0
        assert termios.tcgetattr(self.slave) == self.mode, "the terminal's mode is given back"


def last_user(request):
    return [message["content"] for message in request["messages"] if message["role"] == "user"][-1]


# ---- on a terminal

def test_a_conversation_on_a_terminal(tmp_path):
    with FakeServer(answer("Nice to meet you"), answer("You said hello")) as server, Terminal(server.url, "--system", "Be kind.") as chat:
        chat.expect("fake-model at 127.0.0.1")
        chat.ask("hello")
        chat.expect("Nice to meet you")
        chat.expect("tokens/s")
        chat.ask("what did I say?")
        chat.expect("You said hello")
        saved = tmp_path / "talk.json"
        chat.ask(f"/save {saved}")
        chat.expect("saved")
        chat.ask(f"/save {saved}")
        chat.expect("exists already")
        chat.leave()
        assert server.requests[0]["messages"] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"}]
        assert [message["role"] for message in server.requests[1]["messages"]] == ["system", "user", "assistant", "user"]
        assert server.requests[1]["messages"][2]["content"] == "Nice to meet you"
        assert server.requests[0]["stream"] is True and server.requests[0]["model"] == "fake-model"
    messages = json.loads(saved.read_text())["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant"]
    with FakeServer(answer("Indeed")) as server, Terminal(server.url) as chat:
        chat.ask(f"/load {saved}")
        chat.expect("4 messages")
        chat.ask("go on")
        chat.expect("Indeed")
        chat.leave()
        assert server.requests[0]["messages"] == [*messages, {"role": "user", "content": "go on"}]


def test_ctrl_c_stops_an_answer_and_the_conversation_goes_on():
    with FakeServer(answer("unused")) as server, Terminal(server.url) as chat:
        server.answers = [server.until_the_client_leaves(stream(event("Once upon"))), answer("The end")]
        chat.ask("tell me")
        chat.expect("Once upon")
        chat.type("\x03")
        chat.expect("stopped")
        assert server.left.wait(20), "the connection is closed at once"
        chat.ask("and then?")
        chat.expect("The end")
        chat.leave()
        assert server.requests[1]["messages"][1] == {"role": "assistant", "content": "Once upon"}


def test_ctrl_c_before_the_first_word_takes_the_question_back():
    with FakeServer(answer("unused")) as server, Terminal(server.url) as chat:
        server.answers = [server.until_the_client_leaves(b""), answer("Yes")]
        chat.ask("first")
        deadline = time.monotonic() + 20
        while not server.requests and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.requests, "the question did not arrive"
        chat.type("\x03")
        chat.expect("not kept")
        chat.ask("second")
        chat.expect("Yes")
        chat.leave()
        assert server.requests[1]["messages"] == [{"role": "user", "content": "second"}]


def test_sigterm_leaves_at_once_and_gives_the_terminal_back():
    with FakeServer(answer("unused")) as server, Terminal(server.url) as chat:
        server.answers = [server.until_the_client_leaves(stream(event("Once")))]
        chat.ask("tell me")
        chat.expect("Once")
        chat.process.send_signal(signal.SIGTERM)
        assert chat.process.wait(20) == 0
        assert termios.tcgetattr(chat.slave) == chat.mode


def test_commands():
    with FakeServer(answer("Fine"), models=["one", "two"]) as server, Terminal(server.url) as chat:
        chat.expect("2 two")
        chat.expect("model> ")
        chat.type("2\r")
        chat.ask("/help")
        chat.expect("/retry")
        chat.ask("/nonsense")
        chat.expect("there is no /nonsense")
        chat.ask("/system You are a pirate.")
        chat.ask("/set temperature 0.5")
        chat.expect("temperature is 0.5")
        chat.ask("/set temperature nan")
        chat.expect("takes a number")
        chat.ask("/set temperature = 0.25")
        chat.expect("temperature is 0.25")
        chat.ask("/set max_tokens =7")
        chat.expect("max_tokens is 7")
        chat.ask("/set max_tokens")
        chat.expect("max_tokens is the server's affair")
        chat.ask("/set temperature=0.5")
        chat.expect("temperature is 0.5")
        for misspelt in ("/set colour 3", "/set colour"):
            chat.ask(misspelt)
            chat.expect("there is no setting 'colour'")
        chat.ask("/retry")
        chat.expect("nothing to ask again")
        chat.ask("hi")
        chat.expect("Fine")
        chat.ask("/retry")
        chat.expect("Fine")
        chat.ask("/model one")
        chat.expect("talking to one")
        chat.ask("/model three")
        chat.expect("lists no model 'three'")
        chat.ask("/clear")
        chat.ask("/system -")
        chat.ask("//slash")
        chat.expect("Fine")
        chat.ask("/exit")
        assert chat.process.wait(20) == 0
        first, again, last = server.requests
        assert first == again and first["model"] == "two" and first["temperature"] == 0.5
        assert first["messages"] == [{"role": "system", "content": "You are a pirate."}, {"role": "user", "content": "hi"}]
        assert last["messages"] == [{"role": "user", "content": "/slash"}] and last["model"] == "one"


def test_keys_edit_the_line():
    keys = [("helo\x1b[D\x1b[Dl\r", "hello"),                        # left, left
            ("b\x01a\x05c\r", "abc"),                                # home, end
            ("one two\x17three\r", "one three"),                     # a word back
            ("grün\x7fe\r", "grüe"), ("über\x01\x1b[3~\r", "ber"),   # whole characters go
            ("lost\x15kept\r", "kept"), ("lost\x03kept\r", "kept"),  # Ctrl-U, Ctrl-C
            ("\x1b[A\r", "kept"),                                    # the line before
            ("\x1b[A\x1b[A\x1b[B\x1b[Bnew\r", "new"),
            ("\x1b[200~two\nlines\x1b[201~!\r", "two\nlines!"),      # pasted
            ("two\x1b\rmore\r", "two\nmore"),                        # Alt-Enter
            ("\x1b[200~\x1b[Atext\x07\x1b[201~\r", "[Atext"),        # keys in a paste are text
            ("x" * 300 + "\x01y\r", "y" + "x" * 300)]
    with FakeServer(answer("Ok")) as server, Terminal(server.url) as chat:
        for typed, meant in keys:
            chat.expect("> ")
            chat.type(typed)
            chat.expect("Ok")
            chat.expect("tokens/s")
            assert last_user(server.requests[-1]) == meant
        chat.leave()


def test_what_a_server_says_does_not_steer_the_terminal():
    evil = "\x1b]0;owned\x07\x1b[2Jclean\u009b31m\x08\r\x7fend"
    with FakeServer(answer(evil), models=["mo\x1b[31mdel"]) as server, Terminal(server.url) as chat:
        chat.ask("hi")
        chat.expect("end")
        chat.leave()
        said = re.sub(r"\x1b\[(\?2004[hl]|K|\d*C)", "", chat.seen)
        assert "\x1b" not in said and "\x07" not in said and "\u009b" not in said and "\x08" not in said


def test_reasoning_is_shown_and_not_sent_back():
    thought = b'data: {"choices":[{"index":0,"delta":{"reasoning_content":"Hmm."}}]}\n\n'
    with FakeServer(stream(thought, event("42"), event(finish_reason="stop"))) as server, Terminal(server.url) as chat:
        chat.ask("life?")
        chat.expect("Hmm.")
        chat.expect("42")
        chat.ask("sure?")
        chat.expect("42")
        chat.leave()
        assert server.requests[1]["messages"][1]["content"] == "42"


def test_a_failure_on_a_terminal_is_no_end():
    with FakeServer(whole(500, {"error": {"message": "out of order"}}), answer("Better")) as server, Terminal(server.url) as chat:
        chat.ask("hi")
        chat.expect("answered 500: out of order")
        chat.ask("/retry")
        chat.expect("Better")
        chat.leave()
        assert server.requests[0]["messages"] == server.requests[1]["messages"]


def questions(request):
    return [message["content"] for message in request["messages"]]


def test_retry_asks_the_question_that_failed_and_keeps_what_was_answered():
    broken = whole(500, {"error": {"message": "out of order"}})
    with FakeServer(answer("One"), broken, broken, answer("Two"), broken, answer("Deux"), answer("Three")) as server, Terminal(server.url) as chat:
        for typed, said in [("first", "One"), ("second", "out of order"), ("/retry", "out of order"), ("/retry", "Two"),
                            ("/retry", "out of order"), ("/retry", "Deux"), ("third", "Three")]:
            chat.ask(typed)
            chat.expect(said)
        chat.leave()
        second = ["first", "One", "second"]
        assert list(map(questions, server.requests)) == [["first"], *[second] * 5, [*second, "Deux", "third"]]


def test_a_stopped_retry_keeps_the_answer_before():
    with FakeServer(answer("unused")) as server, Terminal(server.url) as chat:
        server.answers = [answer("One"), server.until_the_client_leaves(b""), answer("Two")]
        chat.ask("first")
        chat.expect("One")
        chat.ask("/retry")
        deadline = time.monotonic() + 20
        while len(server.requests) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(server.requests) == 2, "the question did not arrive"
        chat.type("\x03")
        chat.expect("the answer before stays")
        chat.ask("second")
        chat.expect("Two")
        chat.leave()
        assert questions(server.requests[2]) == ["first", "One", "second"]


def test_retry_after_load(tmp_path):
    saved = tmp_path / "talk.json"
    saved.write_text(json.dumps({"messages": [{"role": "user", "content": "first"}, {"role": "assistant", "content": "One"}]}))
    broken = whole(500, {"error": {"message": "out of order"}})
    with FakeServer(broken, broken, answer("Uno"), broken, answer("Two")) as server, Terminal(server.url) as chat:
        for typed, said in [("lost", "out of order"), (f"/load {tmp_path / 'none'}", "! "), (f"/load {saved}", "2 messages"), ("/retry", "out of order"),
                            ("/retry", "Uno"), ("second", "out of order"), ("/retry", "Two")]:
            chat.ask(typed)
            chat.expect(said)
        chat.leave()
        assert list(map(questions, server.requests)) == [["lost"], ["first"], ["first"], *[["first", "Uno", "second"]] * 2]


def test_a_model_whose_name_begins_with_a_number_is_chosen_by_name():
    with FakeServer(answer("Fine"), models=["one", "2-mini", "1"]) as server, Terminal(server.url) as chat:
        chat.expect("model> ")
        chat.type("1x\r")
        chat.expect("There is no model '1x'")
        chat.expect("model> ")
        chat.type("2-mini\r")
        chat.ask("hi")
        chat.expect("Fine")
        chat.ask("/model 1")
        chat.expect("talking to 1]")
        chat.ask("/model 2")
        chat.expect("talking to 2-mini]")
        chat.leave()
        assert server.requests[0]["model"] == "2-mini"


def test_a_paste_longer_than_a_line_is_cut_and_never_taken_for_keys():
    with FakeServer(answer("Ok")) as server, Terminal(server.url) as chat:
        chat.expect("> ")
        most = 4 * 1024 * 1024
        typed = b"\x1b[200~" + "\u00e4".encode() * (most // 2 - 1) + b"x" + "\u00e4".encode() + b"\r/exit\r\x04" * 50 + b"\x1b[201~"
        while typed:
            typed = typed[os.write(chat.master, typed[:4096]):]
        chat.expect("left out")
        chat.expect("> ")
        chat.type("\r")
        chat.expect("Ok")
        chat.expect("> ")
        chat.type("short\r")
        chat.expect("Ok")
        chat.leave()
        assert last_user(server.requests[0]) == "\u00e4" * (most // 2 - 1) + "x"
        assert last_user(server.requests[1]) == "short"


# ---- through a pipe

@pytest.mark.parametrize("wrong", [answer("\x1b]0;owned\x07\u009b31mend"), whole(500, {"error": {"message": "\x1b[2Jowned\u009b31m"}})])
def test_what_a_server_says_does_not_steer_the_screen_behind_a_pipe(wrong):
    with FakeServer(wrong) as server:
        master, slave = pty.openpty()
        run = subprocess.run([BINARY, "chat", server.url], input=b"hi", stdout=slave, stderr=slave, timeout=60, env=clean_environment())
        os.close(slave)
        said = b""
        while select.select([master], [], [], 0)[0]:
            try:
                said += os.read(master, 65536)
            except OSError:  # all has been read
                break
        os.close(master)
        said = said.decode()
        assert run.returncode in (0, 1) and ("end" in said or "owned" in said)
        assert not any(control in said for control in "\x1b\x07\u009b")
        # Standard error may be a screen whatever standard output is; a file gets the answer as it is.
        piped = pipe(server.url)
        assert "\x1b" not in piped.stderr and ("\x1b" in piped.stdout) == (run.returncode == 0)
        listed = FakeServer(wrong, models=["a\x1b[2J", "b"])
        with listed:
            assert "\x1b" not in pipe(listed.url).stderr


def test_a_pipe_gives_the_answer_alone():
    with FakeServer(answer("Forty two")) as server:
        run = pipe(server.url, "--set", "max_tokens=9", "--set", "temperature=0", text="What is\nthe answer?\n")
        assert (run.returncode, run.stdout, run.stderr) == (0, "Forty two\n", "")
        assert server.requests[0]["messages"] == [{"role": "user", "content": "What is\nthe answer?"}]
        assert server.requests[0]["max_tokens"] == 9 and server.requests[0]["temperature"] == 0


def test_lines_are_turns_and_commands():
    with FakeServer(answer("One"), answer("Two")) as server:
        run = pipe(server.url, "--lines", "--stats", text="first\n\n/system Be brief.\nsecond\n/exit\nthird\n")
        assert run.returncode == 0 and run.stdout == "One\nTwo\n" and run.stderr.count("tokens/s") == 2
        assert [message["content"] for message in server.requests[1]["messages"]] == ["Be brief.", "first", "One", "second"]


def test_an_answer_that_is_not_streamed_is_taken_too():
    with FakeServer(whole(200, {"choices": [{"message": {"role": "assistant", "content": "At once"}, "finish_reason": "stop"}]})) as server:
        assert pipe(server.url).stdout == "At once\n"


def test_the_url_may_name_the_api(tmp_path):
    with FakeServer(answer("Yes")) as server:
        for url in (server.url, server.url + "/", server.url + "/v1", server.url + "/v1/", server.url.removeprefix("http://")):
            assert pipe(url).stdout == "Yes\n"
        assert all(head.startswith("POST /v1/chat/completions ") for head in server.heads)


def test_keys_come_from_a_file_or_the_environment(tmp_path):
    keys = tmp_path / "key"
    keys.write_text("# mine\n\nsecret-1\n")
    with FakeServer(answer("Yes")) as server:
        assert pipe(server.url, "--api-key-file", keys, SHOAL_API_KEY="other").returncode == 0
        assert pipe(server.url, SHOAL_API_KEY="secret-2").returncode == 0
        assert pipe(server.url, OPENAI_API_KEY="costs-money").returncode == 0
        assert "Authorization: Bearer secret-1\r\n" in server.heads[0] + "\r\n"
        assert "Authorization: Bearer secret-2\r\n" in server.heads[1] + "\r\n"
        assert "costs-money" not in server.heads[2], "it is not sent in clear text"
        assert pipe(server.url, "--api-key-file", tmp_path / "none").returncode == 1
        assert pipe(server.url, SHOAL_API_KEY="a\r\nX-Evil: 1").returncode == 2


def drop(connection):
    connection.sendall(stream(event("Once upon a")))


def reset(connection):
    connection.sendall(stream(event("Once upon a")))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("wrong, said", [
    (whole(500, {"error": {"message": "out of order"}}), "answered 500: out of order"),
    (whole(401, {"error": {"message": "no key"}}), "answered 401: no key"),
    (whole(404, b"<html>nothing</html>", "text/html"), "answered 404"),
    (whole(200, b"<html>hello</html>", "text/html"), "is no JSON"),
    (whole(200, b""), "is no JSON"),
    (whole(200, {"choices": []}), "holds no message"),
    (whole(200, {"choices": [{"message": {"content": 7}}]}), "holds no message"),
    (stream(b"data: {broken\n\n"), "an event that is no JSON"),
    (stream(b"data: \xff\xfe\n\n"), "an event that is no JSON"),
    (stream(b"data: " + b"[" * 5000 + b"\n\n"), "an event that is no JSON"),
    (stream(event("Well"), b'data: {"error":{"message":"the engine failed"}}\n\n'), "the engine failed"),
    (stream(b"data: " + b"x" * 17_000_000), "an event without end"),
    (stream(), "broke off"), (drop, "broke off"),
    (reset, ("broke off", "no answer")),  # the reset may overtake what was sent
    (b"", "no answer"), (b"\x00\x01\x02garbage\r\n\r\n", "no answer"), (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000, "no answer"),
    (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "broke off"),
])
def test_a_server_that_misbehaves_is_one_sentence(wrong, said):
    with FakeServer(wrong) as server:
        run = pipe(server.url)
        sentences = said if isinstance(said, tuple) else (said,)
        assert run.returncode == 1 and any(sentence in run.stderr for sentence in sentences), (run.stdout[-200:], run.stderr[-500:])
        assert run.stderr.count("\n") == 1


def test_odd_events_are_passed_over():
    odd = [b": comment\n\n", b"event: ping\ndata: {}\n\n", b'data: {"choices":[]}\n\n', b'data: {"choices":[{"delta":{"content":null}}]}\n\n',
           b'data: 7\n\n', b'data: {"choices":"none"}\n\n', b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n']
    with FakeServer(stream(*odd, event("Fine"), b"data: [DONE]\n\n", b"data: {broken\n\n")) as server:
        run = pipe(server.url)
        assert (run.returncode, run.stdout) == (0, "Fine\n")


def test_a_silent_server_ends_at_the_timeout():
    with FakeServer(b"") as server:
        server.answers = [server.until_the_client_leaves(stream(event("Once")))]
        begun = time.monotonic()
        run = pipe(server.url, "--timeout", 0.5)
        assert run.returncode == 1 and "in time" in run.stderr and time.monotonic() - begun < 20


@pytest.mark.parametrize("models, said", [
    (whole(200, {"data": "none"}), "something else than a list of models"), (whole(200, b"<html>"), "something else"),
    (whole(404, b"nothing"), "answered 404"), ([], "lists no model"), (["a", "b"], "choose with --model: a, b"), (b"", "no answer"),
])
def test_a_list_of_models_that_does_not_help_is_one_sentence(models, said):
    with FakeServer(answer("Yes"), models=models) as server:
        run = pipe(server.url)
        assert run.returncode == 1 and said in run.stderr and run.stderr.count("\n") == 1, run.stderr
        assert pipe(server.url, "--model", "a").stdout == "Yes\n"
        assert server.requests[-1]["model"] == "a"


def test_what_cannot_be_asked_is_one_sentence(tmp_path):
    assert "cannot connect" in pipe("http://127.0.0.1:1").stderr
    assert pipe("ftp://host").returncode == 2
    assert pipe("http://127.0.0.1:1", text="  \n").stderr == "shoal chat: standard input holds no message\n"
    assert b"not UTF-8" in pipe("http://127.0.0.1:1", text=b"\xff\xfe").stderr
    assert pipe("http://127.0.0.1:1", "--timeout", "nan").returncode == 2
    assert pipe("http://127.0.0.1:1", "--set", "temperature").returncode == 2
    broken = tmp_path / "talk.json"
    with FakeServer(answer("Yes")) as server:
        for text in ("", "[]", '{"messages": 3}', '{"messages": [{"role": "assistant", "content": "x"}]}', '{"messages": [{"role": "user"}]}'):
            broken.write_text(text)
            run = pipe(server.url, "--lines", text=f"/load {broken}\n")
            assert run.returncode == 1 and "holds no conversation" in run.stderr
        assert "No such file" in pipe(server.url, "--lines", text="/save /no/such/folder/x\n").stderr


# ---- against shoal serve

def test_against_shoal_serve(demo):
    run = pipe(demo.url, "--set", "temperature=0", "--set", "max_tokens=24", "--stats", text="What is the capital of France, and what is it known for?")
    assert run.returncode == 0 and "Paris" in run.stdout, run.stderr
    assert re.fullmatch(r"\[24 tokens, \d+\.\d tokens/s, first after \d+\.\d\d s, cut at the length allowed\]\n", run.stderr)


def test_stopping_an_answer_of_shoal_serve_frees_its_pages(demo):
    with Terminal(demo.url, "--set", "max_tokens=4000") as chat:
        chat.ask("Count to ten thousand.")
        deadline = time.monotonic() + 30
        while not (running := demo.get("/get_server_info")[1]["num_requests_running"]) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert running, "the answer did not begin"
        chat.type("\x03")
        chat.expect("[stopped")
        demo.wait_idle(20)
        assert demo.pages()["held"] == 0
        chat.leave()


def test_refusals_of_shoal_serve_are_told(small):
    run = pipe(small.url, "--set", "temperature=9")
    assert run.returncode == 1 and "answered 400" in run.stderr and "temperature" in run.stderr


def test_over_tls(small_model, certificates):
    with Server(small_model, certificates=certificates) as server:
        assert "--ca-file" in pipe(server.url).stderr
        assert "answered 400" in pipe(server.url, "--ca-file", certificates / "server.pem", "--set", "temperature=9").stderr
        assert "PEM" in pipe(server.url, "--ca-file", certificates / "server.key").stderr


# ---- answers that hold none

@pytest.mark.parametrize("events, why", [
    ([b"data: [DONE]\n\n"], "before it began"),
    ([event("a beginning"), event(finish_reason="content_filter"), b"data: [DONE]\n\n"], "content filter"),
    ([event(finish_reason="tool_calls"), b"data: [DONE]\n\n"], "tools"),
])
def test_an_answer_without_an_answer_fails_and_says_why(events, why):
    with FakeServer(stream(*events)) as server:
        ran = pipe(server.url)
    assert ran.returncode == 1 and why in ran.stderr and len(ran.stderr.splitlines()) == 1


def test_an_empty_answer_is_an_answer():
    with FakeServer(stream(event(finish_reason="stop"), b"data: [DONE]\n\n")) as server:
        ran = pipe(server.url)
    assert ran.returncode == 0 and ran.stdout == ""


def test_a_byte_order_mark_hides_no_event():
    with FakeServer(stream(b"\xef\xbb\xbf", event("seen"), event(finish_reason="stop"), b"data: [DONE]\n\n")) as server:
        assert pipe(server.url).stdout.strip() == "seen"


def test_a_server_that_does_not_list_its_models_is_given_up_after_the_timeout():
    silent = socket.create_server(("127.0.0.1", 0))
    with silent:
        begin = time.monotonic()
        ran = pipe(f"http://127.0.0.1:{silent.getsockname()[1]}", "--timeout", 0.5)
        assert ran.returncode == 1 and ran.stderr and time.monotonic() - begin < 10


def test_ctrl_c_ends_the_wait_for_the_list_of_models():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with Terminal(f"http://127.0.0.1:{silent.getsockname()[1]}") as chat:
            connection, _ = silent.accept()
            connection.recv(1)  # it waits for the answer now
            chat.type("\x03")
            assert chat.process.wait(10) != 0
            connection.close()
