"""What the benches of this folder share: medians with their spread, a process's resident memory, the peer's programs."""
import json
import socket
import statistics
import subprocess
import sys
from pathlib import Path


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def resident(pid):
    """Bytes of the process's own memory and of mapped files that are resident; zeros where it has ended."""
    found = {"RssAnon": 0, "RssFile": 0}
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in found:
                found[name] = int(value.split()[0]) * 1024
    except OSError:
        pass
    return {"rss_anon_bytes": found["RssAnon"], "rss_file_bytes": found["RssFile"]}


def llamacpp(variant="native"):
    """The folder of the peer's programs, built first where it is not there yet."""
    built = subprocess.run([Path(__file__).parent / "build_llamacpp", variant], stdout=subprocess.PIPE, text=True, check=True)
    return Path(built.stdout.strip().splitlines()[-1])


def run_json(command, lines=False, **options):
    """What a program prints, read as JSON: one value, or with `lines` one for each line that is an object."""
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if run.returncode != 0:
        sys.exit(f"{Path(command[0]).name} failed:\n{run.stderr[-2000:]}")
    if lines:
        return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return json.loads(run.stdout)


def drift(before, after):
    """The largest change of a ceiling, as a part of it."""
    return max(abs(after[name] - before[name]) / before[name] for name in before)
