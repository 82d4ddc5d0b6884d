"""Harm at every state of a handover: the other worker is free at once, nobody else is harmed, and the next answer is right.

Both legs are sent by the test itself, as a router would, and meet through room_proxy.py. SHOAL_FAULT_ROUNDS: how often
each case is done (20 in ./test --full)."""
import http.client
import json
import os
import random
import signal
import threading
import time

import pytest

from pair import answers, body_of
from room_proxy import WRITE_HEADER, Harm, Proxy
from server import Server

ROUNDS = int(os.environ.get("SHOAL_FAULT_ROUNDS", 1))
SECONDS = {"kill": 1.0, "stop": 2.0, "cut": 2.0, "drop": 61.0}  # until the other side is free; others as a kill
BUSY = 0.5  # the machine may have other things to do
STATES = ["route", "room", "accept", "fetch", "write", "write5", "commit", "landed"]
# Before the workers have met: prefill's leg holds nothing and waits for its call, until whoever sent it ends it.
EARLY = ("route", "room")
PROMPT = "The dog and the cat went to the park. " * 16  # some 200 tokens, so that each chunk has its writes
OTHER = "One day a little girl named Lily found a needle in her room. " * 3


def frame_of(state):
    return {"frame": "write", "nth": 5} if state == "write5" else {"frame": state}


class Leg:
    """A request to one worker that can be hung up on."""

    def __init__(self, server, body):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.status, self.answer, self.ended = None, None, None
        self.thread = threading.Thread(target=self._run, args=(json.dumps(body),), daemon=True)
        self.thread.start()

    def _run(self, body):
        try:
            self.connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            answer = self.connection.getresponse()
            self.status, self.answer = answer.status, json.loads(answer.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.answer = repr(error)
        self.ended = time.monotonic()

    def hang_up(self):
        if self.connection.sock is not None and self.ended is None:
            self.connection.sock.shutdown(2)

    def wait(self, seconds):
        self.thread.join(seconds)
        assert not self.thread.is_alive(), "the leg goes on"


class Rig:
    """Workers that can be lost and come again."""

    def __init__(self, model, token, alone):
        self.model, self.token = model, token
        self.prefill = self.start("prefill")
        self.decode = self.start("decode")
        self.proxy = Proxy(self.bootstrap_of(self.prefill))
        self.expected = {prompt: answers(alone.post("/v1/completions", body_of(prompt, 12))[1]) for prompt in (PROMPT, OTHER)}

    def start(self, role):
        # Bytes between processes of one host would else not go through the proxy.
        flags = ("--bootstrap-port", 0, "--prefill-chunk", 16) if role == "prefill" else ("--kv-carrier", "tcp")
        return Server(self.model, "--served-model-name", "small", "--deterministic", "--token-file", self.token, "--threads", 1,
                      "--kv-checksum", "full", "--role", role, *flags)

    @staticmethod
    def bootstrap_of(server):
        return server.get("/get_server_info")[1]["bootstrap_port"]

    def revive(self, role):
        getattr(self, role).process.kill()
        getattr(self, role).process.wait()
        setattr(self, role, self.start(role))
        if role == "prefill":
            self.proxy.moved(self.bootstrap_of(self.prefill))

    def close(self):
        self.proxy.close()
        for server in (self.prefill, self.decode):
            if server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
            server.__exit__()

    def ask(self, prompt=PROMPT, through_proxy=True, tokens=12):
        """Both legs of a request that no cache knows."""
        room = random.getrandbits(63)
        body = body_of(prompt, tokens, bootstrap_host="127.0.0.1", bootstrap_room=room, cache_salt=str(room), rid=str(room),
                       bootstrap_port=self.proxy.bootstrap if through_proxy else self.bootstrap_of(self.prefill))
        return Leg(self.prefill, body), Leg(self.decode, body)

    def expect_right(self, legs, prompt=PROMPT):
        for leg in legs:
            leg.wait(30)
            assert leg.status == 200, leg.answer
        assert answers(legs[1].answer) == self.expected[prompt]

    def until_free(self, server, since, seconds, pages_only=False):
        """Seconds until it holds no page, has no open room and all its pages are back."""
        while True:
            info = server.get("/get_server_info", timeout=20)[1]
            held = sum(kv["held"] + kv["fenced"] for kv in info["kv_pages"])
            rooms = sum(info["rooms"][state] for state in ("bootstrapping", "waiting", "transferring"))
            requests = info["num_requests_running"] + info["num_requests_waiting"]
            took = time.monotonic() - since
            if held == 0 and (pages_only or rooms == requests == 0):
                for kv in info["kv_pages"]:
                    assert kv["free"] + kv["cached"] == kv["capacity"]
                return took
            assert took < seconds + 5, (seconds, info["rooms"], held, requests, server.output()[-2000:])
            time.sleep(0.01)


@pytest.fixture(scope="module")
def rig(small_model, token):
    with Server(small_model, "--served-model-name", "small", "--deterministic", "--threads", 1) as alone:
        made = Rig(small_model, token, alone)
    yield made
    made.close()


def harm_of(rig, state, action, victim, at):
    """The harm, the moment it is done, and the time that the other side has then."""
    moment = []

    def signal_to(number):
        def act():
            moment.append(time.monotonic())
            getattr(rig, victim).process.send_signal(number)
        return act
    if action in ("kill", "stop"):
        act = signal_to(signal.SIGKILL if action == "kill" else signal.SIGSTOP)
    else:
        act = action
    return Harm(**frame_of(state), action=act, at=at), moment, SECONDS.get(action, 1.0)


def check(rig, state, action, victim=None, at=None, bystander=True):
    harm, moment, seconds = harm_of(rig, state, action, victim, at)
    # Whoever is not meant goes on: not where a process is lost that all need.
    others = rig.ask(OTHER, through_proxy=False) if bystander and victim is None else None
    rig.proxy.harm = harm
    legs = rig.ask()
    try:
        assert wait_for(harm, moment, legs), (state, action, [leg.answer for leg in legs])
        began = moment[0] if moment else time.monotonic()
        survivors = {"prefill": [(rig.decode, legs[1])], "decode": [(rig.prefill, legs[0])]}.get(
            victim, [(rig.prefill, legs[0]), (rig.decode, legs[1])])
        if others:
            rig.expect_right(others, OTHER)
        waits = state in EARLY and victim != "prefill"
        took = max(rig.until_free(server, began, seconds, waits and server is rig.prefill) for server, _ in survivors)
        if waits:
            legs[0].hang_up()
        for server, leg in survivors:
            leg.wait(30)
            if waits and server is rig.prefill:
                continue
            # An end on one side may come when the other has all that it needs.
            if leg.status == 200:
                assert server is rig.prefill or answers(leg.answer) == rig.expected[PROMPT]
            else:
                assert leg.status is not None and leg.status >= 400 and leg.answer["error"]["message"], leg.answer
    finally:
        rig.proxy.harm = None
        if action == "kill":
            rig.revive(victim)
        if action == "stop":
            getattr(rig, victim).process.send_signal(signal.SIGCONT)
        rig.proxy.hang_up()
        if state in EARLY:
            legs[0].hang_up()
    print(f"{state} {action} {victim or ''}: free after {took:.2f} s")
    assert took < seconds + BUSY
    for server in (rig.prefill, rig.decode):
        rig.until_free(server, time.monotonic(), 3)
    rig.expect_right(rig.ask())
    return legs


def wait_for(harm, moment, legs, seconds=20):
    deadline = time.monotonic() + seconds
    while not (harm.done.is_set() or moment):
        if time.monotonic() > deadline or all(leg.ended for leg in legs):
            return harm.done.is_set() or bool(moment)
        time.sleep(0.002)
    return True


PROCESS_CASES = [(state, action, victim) for state in STATES for action in ("kill", "stop") for victim in ("prefill", "decode")]
FRAME_CASES = [(state, action, None) for state in STATES for action in ("cut", "close")] + [
    ("write5", action, None) for action in ("duplicate", "truncate")] + [
    (state, action, None) for state in ("accept", "commit") for action in ("duplicate", "truncate")]
SAMPLE = {("write5", "kill", "prefill"), ("write5", "kill", "decode"), ("room", "stop", "prefill"), ("accept", "stop", "decode"),
          ("commit", "kill", "decode"), ("route", "cut", None), ("write5", "cut", None), ("landed", "close", None),
          ("write5", "duplicate", None), ("write5", "truncate", None)}


def cases(all_cases, sample):
    """Those of the sample run in every ./test, the others in the long run."""
    return [pytest.param(*case, id="-".join(filter(None, case)), marks=() if case in sample else pytest.mark.slow) for case in all_cases]


@pytest.mark.parametrize("state, action, victim", cases(PROCESS_CASES + FRAME_CASES, SAMPLE))
def test_the_other_side_is_free_at_once(rig, state, action, victim):
    for _ in range(ROUNDS):
        check(rig, state, action, victim)


# Where a write has its table, its first page, the first tile, another one and, at its end, the checksum.
@pytest.mark.parametrize("at, words", [(0, "not asked for"), (24, "not asked for"), (WRITE_HEADER, "checksum differs"),
                                       (WRITE_HEADER + 1000, "checksum differs"), (-1, "checksum differs")])
def test_a_damaged_write_fails_its_request_alone(rig, at, words):
    for _ in range(ROUNDS):
        legs = check(rig, "write5", "corrupt", at=at)
        assert legs[1].status >= 400 and words in legs[1].answer["error"]["message"], legs[1].answer


@pytest.mark.slow
@pytest.mark.parametrize("state", [state for state in STATES if state != "route"])
def test_what_is_lost_between_workers_that_live_ends_by_a_deadline(rig, state):
    """No connection loses a message of its middle; whoever swallows one ends the request, late and alone."""
    check(rig, state, "drop")


@pytest.mark.parametrize("state", cases([(state,) for state in STATES], {("room",), ("write5",)}))
def test_a_delay_is_only_slow(rig, state):
    """Nobody is taken for dead within 1.2 s of silence."""
    rig.proxy.harm = Harm(**frame_of(state), action="delay", seconds=1.2)
    try:
        rig.expect_right(rig.ask())
        assert rig.proxy.harm.done.is_set()
    finally:
        rig.proxy.harm = None


@pytest.mark.parametrize("state, leg", cases(
    [(state, leg) for state in STATES for leg in ("prefill", "decode")],
    {("accept", "prefill"), ("write5", "prefill"), ("write5", "decode"), ("commit", "decode")}))
def test_a_client_that_goes_from_one_leg_frees_both_sides(rig, state, leg):
    for _ in range(ROUNDS):
        legs, moment = [], []
        ready = threading.Event()

        def act():
            ready.wait(10)
            moment.append(time.monotonic())
            legs[leg == "decode"].hang_up()
        rig.proxy.harm = Harm(**frame_of(state), action=act)
        others = rig.ask(OTHER, through_proxy=False)
        try:
            legs += rig.ask()
            ready.set()
            assert wait_for(rig.proxy.harm, moment, legs)
            rig.expect_right(others, OTHER)
            waits = state in EARLY and leg == "decode"
            took = max(rig.until_free(rig.decode, moment[0], 1), rig.until_free(rig.prefill, moment[0], 1, pages_only=waits))
            if waits:
                legs[0].hang_up()
        finally:
            rig.proxy.harm = None
        other = legs[leg != "decode"]
        other.wait(5)
        if other.status == 200 and leg == "prefill":
            assert answers(other.answer) == rig.expected[PROMPT]
        assert took < 1 + BUSY
        rig.expect_right(rig.ask())


def test_a_room_cannot_be_used_again(rig):
    legs = rig.ask()
    rig.expect_right(legs)
    body = body_of(PROMPT, 12, bootstrap_host="127.0.0.1", bootstrap_room=77, cache_salt="77", bootstrap_port=rig.proxy.bootstrap)
    first = [Leg(rig.prefill, body), Leg(rig.decode, body)]
    rig.expect_right(first)
    for server in (rig.prefill, rig.decode):
        status, answer = server.post("/v1/completions", body)
        assert status == 400 and "room 77 is over" in answer["error"]["message"], answer
