"""Measures what it costs to watch a run: the quickstart's small GPT with a live page that is read whole once a second,
Prometheus' measurements as often, TensorBoard, Weights & Biases and an MLflow server that answers, against the same run
without them, in alternating pairs. Also the CPU time of the threads that serve, write and watch.

With --soak, one run for so many minutes instead, its page open in Chromium if that is installed, and read besides at
--scrapes requests a second: the run's memory at a tenth of the time and at the end.

usage: watch_cost.py --binary build/release/bin/gputrain [--pairs N] [--steps N] [--soak MINUTES] [--scrapes N]
"""

import argparse
import http.server
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WATCHING = {"metrics server", "alerts", "tracker", "gpu readings"}  # names of threads
TICKS = os.sysconf("SC_CLK_TCK")


class Mlflow(http.server.BaseHTTPRequestHandler):
    """Answers as an MLflow server does, and keeps nothing."""

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.dumps({"experiment_id": "1", "experiment": {"experiment_id": "1"},
                           "run": {"info": {"run_id": "1", "run_uuid": "1"}}, "runs": []}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


def cpu_seconds(stat: str) -> float:
    user, system = stat.rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / TICKS


def seconds_of_threads(pid: int) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            seconds[name] = seconds.get(name, 0) + cpu_seconds((task / "stat").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return seconds


class Run:
    def __init__(self, binary: str, folder: str, steps: int, watched: bool, mlflow: str):
        settings = [f"train.max_steps={steps}", f"eval.interval={steps}", f"checkpoint.interval={steps}",
                    "log.interval=10", "eval.sample=null"]
        if watched:
            settings += ["log.metrics_port=0", "log.tensorboard=true", "log.wandb.project=watch", "log.wandb.mode=offline",
                         f"log.mlflow.uri={mlflow}"]
        command = [binary, "run", str(ROOT / "configs/quickstart.yaml"), "--output-dir", f"{folder}/run"]
        for setting in settings:
            command += ["--set", setting]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT,
                                        env=os.environ | {"GPUTRAIN_METADATA_URL": "aws=http://127.0.0.1:9"})
        self.page = None
        self.requests = self.unanswered = 0
        for line in self.process.stdout:
            found = re.search(r"http://127\.0\.0\.1:\d+/", line)
            if found:
                self.page = found.group()
            if line.startswith("step"):
                break
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def read_page(self, per_second: float):
        """Reads page and measurements until the run ends, and counts requests without an answer within 5 s."""
        due = time.monotonic()
        while self.process.poll() is None:
            for path in ("state", "metrics"):
                self.requests += 1
                try:
                    urllib.request.urlopen(self.page + path, timeout=5).read()
                except (urllib.error.URLError, ConnectionError, TimeoutError):
                    self.unanswered += self.process.poll() is None
            due += 2 / per_second
            time.sleep(max(0.0, due - time.monotonic()))


def measured(binary: str, steps: int, watched: bool, mlflow: str) -> tuple[float, float, float]:
    """Seconds from the first log line to the last, CPU seconds of the process, and of the threads that watch."""
    with tempfile.TemporaryDirectory(prefix="gputrain-watch-") as folder:
        run = Run(binary, folder, steps, watched, mlflow)
        if watched:
            threading.Thread(target=run.read_page, args=(2,), daemon=True).start()
        threads: dict[str, float] = {}
        while run.process.poll() is None:
            for name, seconds in seconds_of_threads(run.process.pid).items():  # some end before the others
                threads[name] = max(threads.get(name, 0), seconds)
            time.sleep(0.2)
        if run.process.returncode != 0:
            raise SystemExit(f"the run ended with exit code {run.process.returncode}")
        lines = [json.loads(line) for line in Path(f"{folder}/run/metrics.jsonl").read_text().splitlines()]
        times = [line["time"] for line in lines if line["kind"] == "train"]
        return times[-1] - times[0], sum(threads.values()), sum(threads.get(name, 0) for name in WATCHING)


def compare(arguments, mlflow: str):
    ratios, shares = [], []
    for pair in range(arguments.pairs):
        order = [True, False] if pair % 2 == 0 else [False, True]
        results = {watched: measured(arguments.binary, arguments.steps, watched, mlflow) for watched in order}
        wall, cpu, watching = results[True]
        ratios.append(wall / results[False][0])
        shares.append(watching / cpu)
        print(f"pair {pair + 1}/{arguments.pairs}: watched {wall:.2f} s, alone {results[False][0]:.2f} s, "
              f"ratio {ratios[-1]:.3f}; CPU {cpu:.2f} s and {results[False][1]:.2f} s, of it threads that watch "
              f"{watching:.2f} s", flush=True)
    print(f"watched takes {statistics.median(ratios):.3f} of the time alone; the threads that watch take "
          f"{100 * statistics.median(shares):.2f} % of the CPU time")


def resident_mebibytes(pid: int) -> float:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1)) / 1024


def soak(arguments, mlflow: str):
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory(prefix="gputrain-watch-") as folder:
        run = Run(arguments.binary, folder, 10**7, True, mlflow)
        browser = chromium and subprocess.Popen(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/browser",
             "--remote-debugging-port=0", run.page], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        threading.Thread(target=run.read_page, args=(arguments.scrapes,), daemon=True).start()
        end = 60 * arguments.soak
        first = None
        begin = time.monotonic()
        while (passed := time.monotonic() - begin) < end and run.process.poll() is None:
            if first is None and passed >= end / 10:
                first = resident_mebibytes(run.process.pid)
            time.sleep(1)
        if run.process.poll() is not None:
            raise SystemExit(f"the run ended with exit code {run.process.returncode}")
        threads = seconds_of_threads(run.process.pid)
        watching = sum(threads.get(name, 0) for name in WATCHING)
        print(f"{passed / 60:.0f} minutes, page open {'in Chromium' if browser else 'nowhere'}: memory {first:.0f} MiB "
              f"after a tenth, {resident_mebibytes(run.process.pid):.0f} MiB at the end; {run.unanswered} of "
              f"{run.requests} requests without an answer; the threads that watch take "
              f"{100 * watching / sum(threads.values()):.2f} % of the CPU time")
        if browser:
            browser.terminate()
            browser.wait()
        run.process.terminate()
        run.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--soak", type=float, metavar="MINUTES")
    parser.add_argument("--scrapes", type=float, default=20, metavar="PER_SECOND")
    arguments = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mlflow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    mlflow = f"http://127.0.0.1:{server.server_port}"
    soak(arguments, mlflow) if arguments.soak else compare(arguments, mlflow)


main()
