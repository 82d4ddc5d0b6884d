"""Starts and stops `shoal gateway` for tests; a Gateway is asked like any Server."""
import time

from server import BINARY, Server


class Gateway(Server):
    """One `shoal gateway` in front of these workers (servers, or URLs); prefill, decode: those of the roles."""

    def __init__(self, *workers, flags=(), prefill=(), decode=(), **options):
        named = [(flag, worker if isinstance(worker, str) else worker.url)
                 for flag, those in (("--worker", workers), ("--prefill", prefill), ("--decode", decode)) for worker in those]
        super().__init__(None, *(word for pair in named for word in pair), *flags, command="gateway", **options)
        if named:
            self.wait_for_workers(len(named))

    def workers(self):
        return {worker["url"]: worker for worker in self.get("/workers")[1]["workers"]}

    def wait_for_workers(self, count, seconds=20):
        """Until so many take requests."""
        self.wait_until(lambda: sum(worker["available"] for worker in self.workers().values()) == count, seconds)

    def wait_until(self, condition, seconds=20):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not in {seconds} s: {self.workers()}"
            time.sleep(0.02)

    def metric(self, name):
        """The sum of a metric's samples whose line begins with name."""
        text = self.get("/metrics")[1]
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))

    def ended(self):
        """Requests that came, and those that have ended, by how."""
        text = self.get("/metrics")[1]
        ends = {line.split('"')[1]: int(float(line.rsplit(" ", 1)[1])) for line in text.splitlines()
                if line.startswith("shoal_gateway_requests_ended_total{")}
        return int(self.metric("shoal_gateway_requests_received_total")), ends
