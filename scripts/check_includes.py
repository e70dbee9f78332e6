"""Checks includes: a room (folder of src/) may use only itself and earlier rooms of scripts/cmake/Rooms.cmake,
public headers must stay cheap to include, and those that are installed for plug-ins include no others. Prints each violation as file:line: message; exits 1 if there is one.

usage: check_includes.py [ROOT]
"""

import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*(?P<quote>[<"])(?P<path>[^>"]+)[>"]')
HEAVY_EVERYWHERE = {"torch/torch.h", "torch/all.h", "torch/extension.h"}  # 18 s and 1.4 GB each
JSON_READER = "gputrain/core/json.hpp"  # the one public header with all of JSON; for sources alone
HEAVY_IN_PUBLIC = ("torch/", "ATen/", "yaml-cpp/", "CLI/", "spdlog/", "fmt/", "gtest/", "gmock/", "nlohmann/", "cuda",
                   JSON_READER)
LIGHT = {"ATen/core/Tensor.h", "ATen/core/TensorBody.h", "ATen/core/grad_mode.h", "nlohmann/json_fwd.hpp"}


def rooms_of(root: Path, variable: str) -> list[str]:
    text = (root / "scripts/cmake/Rooms.cmake").read_text()
    return re.search(rf"set\({variable} ([^)]*)\)", text)[1].split()


def offences(root: Path):
    rooms, installed = rooms_of(root, "GPUTRAIN_ROOMS"), rooms_of(root, "GPUTRAIN_PLUGIN_ROOMS")
    rank = {room: index for index, room in enumerate(rooms)}
    for base in ("include/gputrain", "src", "tests"):
        for file in sorted((root / base).rglob("*")):
            if file.suffix not in {".hpp", ".cpp", ".cu", ".cuh", ".h"}:
                continue
            room = file.relative_to(root / base).parts[0]
            for number, line in enumerate(file.read_text().splitlines(), 1):
                include = INCLUDE.match(line)
                if include:
                    yield from check(file.relative_to(root), number, room, include["path"], rank, installed)


def check(file: Path, number: int, room: str, path: str, rank: dict[str, int], installed: list[str]):
    parts = [part for part in Path(path).parts if part not in {"gputrain", "src", "tests", ".."}]
    used = parts[0] if len(parts) > 1 else None
    if room in rank and used in rank and rank[used] > rank[room]:
        yield f"{file}:{number}: {room}/ includes {path}, but {used}/ lies below it"
    if file.parts[0] == "include" and room in installed and used in rank and used not in installed:
        yield f"{file}:{number}: {path} is not installed for plug-ins, and {room}/ is (GPUTRAIN_PLUGIN_ROOMS)"
    if path in HEAVY_EVERYWHERE:
        yield f"{file}:{number}: {path} is too heavy; include the single headers that are used"
    if file.parts[0] == "include" and path.startswith(HEAVY_IN_PUBLIC) and path not in LIGHT and str(file) != f"include/{JSON_READER}":
        yield f"{file}:{number}: {path} in a public header; move what needs it to a .cpp"


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = list(offences(root))
    print("\n".join(found) if found else "includes respect the order of rooms")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
