"""What the benches of this folder share: medians with their spread, a process's resident memory, the peer's programs."""
import statistics
import subprocess
from pathlib import Path


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


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
