"""Network namespaces as hosts: joined by veth pairs and a bridge, each limited to 1 Gbit/s. Needs root."""
import json
import os
import shutil
import subprocess

RATE = ["tbf", "rate", "1gbit", "burst", "256kb", "latency", "100ms"]


def why_not():
    """Why there can be no namespaces here; None where there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "ip and tc (iproute2) are not installed"
    name = f"shoal-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode != 0:
        return f"no network namespaces: {made.stderr.strip()}"
    veth = f"shtry{os.getpid()}"
    ok = subprocess.run(["ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", name],
                        capture_output=True).returncode == 0
    ok = ok and subprocess.run(["tc", "qdisc", "add", "dev", veth, "root", *RATE], capture_output=True).returncode == 0
    subprocess.run(["ip", "link", "del", veth], capture_output=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return None if ok else "no veth pairs with a rate limit here"


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr}"
    return done.stdout


class Network:
    """`hosts` namespaces on one bridge, which this namespace reaches, too."""

    def __init__(self, hosts):
        pid = os.getpid()
        self.bridge = f"shbr{pid}"
        self.net = f"10.{200 + pid // 250 % 50}.{pid % 250}"
        self.names = [f"shoal-{pid}-{i}" for i in range(hosts)]
        self.veths = [f"sh{pid}v{i}" for i in range(hosts)]

    def __enter__(self):
        try:
            run("ip", "link", "add", self.bridge, "type", "bridge")
            run("ip", "addr", "add", f"{self.net}.254/24", "dev", self.bridge)
            run("ip", "link", "set", self.bridge, "up")
            for i, (name, veth) in enumerate(zip(self.names, self.veths)):
                run("ip", "netns", "add", name)
                run("ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", name)
                run("ip", "link", "set", veth, "master", self.bridge, "up")
                run("ip", "-n", name, "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
                run("ip", "-n", name, "link", "set", "eth0", "up")
                run("ip", "-n", name, "link", "set", "lo", "up")
                run("tc", "qdisc", "add", "dev", veth, "root", *RATE)
                run("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", *RATE)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)  # its veth pair goes with it
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)

    def address(self, host):
        return f"{self.net}.{host + 1}"

    def inside(self, host):
        """What a command is started with to run on this host."""
        return ["ip", "netns", "exec", self.names[host]]

    def sent(self, host):
        """Bytes that have left the host."""
        link = json.loads(run("ip", "-n", self.names[host], "-s", "-j", "link", "show", "dev", "eth0"))[0]
        return link["stats64"]["tx"]["bytes"]

    def cut(self, host):
        run("ip", "link", "set", self.veths[host], "down")

    def part(self, a, b):
        """What these two send to each other is lost; to others it is not."""
        for here, there in ((a, b), (b, a)):
            run("ip", "-n", self.names[here], "neigh", "replace", self.address(there), "lladdr", "02:00:00:00:00:99", "dev", "eth0",
                "nud", "permanent")

    def unite(self, a, b):
        for here, there in ((a, b), (b, a)):
            run("ip", "-n", self.names[here], "neigh", "del", self.address(there), "dev", "eth0")

    def mend(self, host):
        run("ip", "link", "set", self.veths[host], "up")
