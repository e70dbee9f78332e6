"""The page that first.sh leaves: what a reader wants to know first about gputrain on a GPU."""

import json
import re
from collections import Counter
from pathlib import Path

MOST_WARNINGS = MOST_KERNELS = 25
NUMBERS = ("own_ms", "aten_ms", "error")


def gathered(out: Path) -> dict:
    """What the files of the stages say, for first.json."""
    return {"speed": speed(out / "compare.json"), "kernels": kernels(out / "kernel_choices.jsonl"),
            "warnings": warnings(out / "first.log")}


def parsed(text: str):
    try:
        return json.loads(text)
    except ValueError:
        return None  # cut off


def speed(path: Path) -> list[dict]:
    report = parsed(path.read_text()) if path.exists() else None
    entries = [entry for entry in (report or {"results": []})["results"] if entry["contenders"]]
    return [{"workload": entry["workload"], "unit": entry["unit"], "programs": entry["contenders"],
             "gputrain_over": entry["gputrain_over"]} for entry in entries]


def kernels(path: Path) -> dict:
    """How many of our own kernels are taken, and where ATen's is taken instead."""
    entries = [parsed(line) for line in path.read_text().splitlines()] if path.exists() else []
    last = {entry["operator"]: entry for entry in entries if entry and isinstance(entry.get("own"), bool)}
    of_aten = sorted((entry for entry in last.values() if not entry["own"]), key=lost_ms, reverse=True)
    return {"own": len(last) - len(of_aten),
            "aten": [{key: entry.get(key) for key in ("operator", *NUMBERS)} for entry in of_aten]}


def lost_ms(entry: dict) -> float:
    """How much longer our own kernel takes. 0 if it was not timed, because its results differ."""
    return (entry.get("own_ms") or 0) - (entry.get("aten_ms") or 0)


def warnings(path: Path) -> dict[str, int]:
    text = path.read_text(errors="replace") if path.exists() else ""
    return dict(Counter(line[:200] for line in re.findall(r"^ *warning: (.*)$", text, re.M)).most_common())


def table(heads: list[str], rows: list[list]) -> list[str]:
    cells = [[str(cell).replace("|", "/") for cell in row] for row in rows]
    return ["| " + " | ".join(row) + " |" for row in [heads, ["-"] * len(heads), *cells]]


def speed_lines(entry: dict) -> list[list]:
    rows = []
    for name, got in entry["programs"].items():
        gpu = got["gpu"] or {}
        state = f"{gpu.get('clocks.sm', 0):.0f} MHz, {gpu.get('power.draw', 0):.0f} W" if gpu else "-"
        over = entry["gputrain_over"].get(name)
        rows.append([entry["workload"], name, f"{1e3 * got['step_seconds']:,.2f} ms",
                     f"{got['rate']:,.0f} {entry['unit']}", f"{got['peak_bytes'] / 2**20:,.0f} MiB",
                     f"{got['first_loss']:.3f} to {got['last_loss']:.3f}", state,
                     f"{over['speed']:.3f}x as fast, {over['memory']:.2f}x the memory" if over else "-"])
    return rows


def kernel_lines(found: dict) -> list[str]:
    if not found["own"] and not found["aten"]:
        return []
    rows = [[entry["operator"][:90], *(f"{entry[key]:.3g}" if entry[key] else "-" for key in NUMBERS)]
            for entry in found["aten"]]
    more = [f"... and {len(rows) - MOST_KERNELS} more in `kernel_choices.jsonl`"] if len(rows) > MOST_KERNELS else []
    return [f"{found['own']} of our own are taken, {len(rows)} of ATen's (not timed where ours was too inexact):", "",
            *table(["operator", "own ms", "ATen's ms", "error of own"], rows[:MOST_KERNELS]), *more]


def section(title: str, lines: list[str]) -> list[str]:
    return ["", f"## {title}", "", *(lines or ["none"])]


def render(report: dict) -> str:
    stages, machine = report["stages"], report["machine"]
    counts = Counter(entry["outcome"] for entry in stages.values())
    problems = [f"- {name}: {problem}" for name, entry in stages.items() for problem in entry["problems"]]
    rows = [[name, entry["outcome"], entry.get("seconds", "-"), entry["says"]] for name, entry in stages.items()]
    left = [name for name, entry in stages.items() if entry["outcome"] not in ("passed", "skipped")]
    warned = [f"- {count}x {text}" for text, count in list(report["warnings"].items())[:MOST_WARNINGS]]
    heads = ["workload", "program", "step", "rate", "memory", "loss", "SM clock, power", "gputrain is"]
    timed = [row for entry in report["speed"] for row in speed_lines(entry)]
    lines = [f"# gputrain {machine['revision']} on {machine['gpu'] or 'no GPU that nvidia-smi knows'}", "",
             f"{report['written']}, torch {machine['torch']}, {machine['cpu']}. Stages: "
             + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) + ".",
             *section("Problems", problems), *section("Stages", table(["stage", "outcome", "s", "says"], rows)),
             *section("Speed", table(heads, timed) if timed else []),
             *section("Kernels", kernel_lines(report["kernels"])), *section("Warnings", warned),
             *section("What is left", [f"`scripts/gpu/first.sh` goes on with: {' '.join(left)}"] if left else [])]
    return "\n".join(lines) + "\n"
