"""Judges checkpoints from their bytes alone, without code from gputrain."""

import collections
import ctypes
import json
import math
import re
from pathlib import Path

SHARD_NAME = re.compile(r"(.+-)(\d{5})(-of-(\d{5})\.safetensors)")
FINISHED_NAME = re.compile(r"step-(\d{8,})(?:-(\d+))?")  # "-2": the step was saved again
ITEM_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4,
              "I64": 8, "U64": 8, "F64": 8}


class Bad(Exception):
    """Why a checkpoint is not valid."""


class _Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def _load_hash():
    function = ctypes.CDLL("libxxhash.so.0").XXH3_128bits
    function.restype = _Hash128
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return function


_xxh3_128bits = _load_hash()


def xxh3_128(content: bytes) -> str:
    value = _xxh3_128bits(content, len(content))
    return f"{value.high:016x}{value.low:016x}"


def check_safetensors(content: bytes) -> dict[str, list[int]]:
    """Checks that the header is JSON and that its tensors cover the data without holes or overlaps. Returns shapes."""
    header_bytes = int.from_bytes(content[:8], "little")
    if len(content) < 8 or header_bytes > len(content) - 8:
        raise Bad("the header is cut off")
    header = json.loads(content[8 : 8 + header_bytes])
    header.pop("__metadata__", None)
    reached = 0
    for name, tensor in sorted(header.items(), key=lambda entry: entry[1]["data_offsets"]):
        begin, end = tensor["data_offsets"]
        wanted = ITEM_BYTES[tensor["dtype"]]
        for size in tensor["shape"]:
            wanted *= size
        if begin != reached or end - begin != wanted:
            raise Bad(f"tensor {name} is not where it should be")
        reached = end
    if reached != len(content) - 8 - header_bytes:
        raise Bad("the tensors do not cover the file")
    return {name: tensor["shape"] for name, tensor in header.items()}


def check_listed(files: dict[str, dict]) -> None:
    """Checks that the manifest names a file of each part, and all ranks' files of a part that several ranks wrote."""
    shards = [shard for shard in map(SHARD_NAME.fullmatch, files) if shard]
    wanted = {f"{shard[1]}{number:05}{shard[3]}" for shard in shards for number in range(1, int(shard[4]) + 1)}
    parts = {file.get("part") for file in files.values()}
    if not (wanted | {"state.json"} <= set(files) and {"model", "optimizer", "generators"} <= parts):
        raise Bad("files are missing from the manifest")


def places_of(piece: dict, count: int) -> list[int]:
    """Which elements of the whole tensor a piece with `count` elements holds; in `order`, if it gives one."""
    places = range(math.prod(piece["shape"]))
    if "cut" in piece:
        dim, ranges = piece["cut"]["dim"], piece["cut"]["ranges"]
        inner, size = math.prod(piece["shape"][dim + 1 :]), piece["shape"][dim]
        places = [at for at in places if any(begin <= at // inner % size < end for begin, end in ranges)]
    return list(places[piece["begin"] : piece["begin"] + count])


def check_cover(files: dict[str, dict], shapes: dict[str, dict[str, list[int]]]) -> None:
    """Checks that the files of each part together hold each element of each tensor once."""
    pieces, wholes = collections.defaultdict(list), collections.defaultdict(set)
    for name, file in files.items():
        slices = file.get("slices", {})
        if not set(slices) <= set(shapes.get(name, {})):
            raise Bad(f"{name} lacks a slice that the manifest names")
        for tensor, shape in shapes.get(name, {}).items():
            piece = slices.get(tensor, {"shape": shape, "begin": 0})
            pieces[file["part"], tensor] += places_of(piece, math.prod(shape))
            wholes[file["part"], tensor].add((tuple(piece["shape"]), tuple(piece.get("order", ()))))
    for key, places in pieces.items():
        if len(wholes[key]) != 1:
            raise Bad(f"the files disagree on the shape of {key}")
        (shape, _), = wholes[key]
        if sorted(places) != list(range(math.prod(shape))):
            raise Bad(f"the files do not hold each element of {key} once")


def judge(folder: Path) -> int:
    """The step of a valid checkpoint; raises Bad for any other."""
    try:
        sealed = (folder / "manifest.json").read_bytes()
        manifest = json.loads(sealed)
        if manifest["format"] != "gputrain checkpoint" or manifest["version"] not in (3, 4, 5):
            raise Bad("another format")
        if xxh3_128(re.sub(rb'(\n  "seal": ")[0-9a-f]{32}', rb"\g<1>" + b"0" * 32, sealed)) != manifest["seal"]:
            raise Bad("the manifest has another seal")
        check_listed(manifest["files"])
        shapes = {}
        for name, seal in manifest["files"].items():
            content = (folder / name).read_bytes()
            if len(content) != seal["bytes"]:
                raise Bad(f"{name} has {len(content)} bytes instead of {seal['bytes']}")
            if xxh3_128(content) != seal["xxh3_128"]:
                raise Bad(f"{name} has another hash")
            if name.endswith(".safetensors"):
                shapes[name] = check_safetensors(content)
        check_cover(manifest["files"], shapes)
        state = json.loads((folder / "state.json").read_bytes())
        if not manifest["step"] == state["progress"]["step"] == int(FINISHED_NAME.fullmatch(folder.name)[1]):
            raise Bad("it is of another step than its name says")
        return manifest["step"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Bad(f"{type(error).__name__}: {error}") from error


def finished(checkpoints: Path) -> list[Path]:
    """Folders with a finished checkpoint's name, newest first."""
    if not checkpoints.is_dir():
        return []
    named = [path for path in checkpoints.iterdir() if FINISHED_NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(named, key=lambda path: [int(number or 1) for number in FINISHED_NAME.fullmatch(path.name).groups()], reverse=True)


def good_folders(checkpoints: Path) -> tuple[list[Path], dict[str, str]]:
    """The good checkpoints, newest first, and what is wrong with the others by name."""
    good, bad = [], {}
    for folder in finished(checkpoints):
        try:
            judge(folder)
            good.append(folder)
        except Bad as reason:
            bad[folder.name] = str(reason)
    return good, bad


def step_of(name: str) -> int:
    return int(FINISHED_NAME.fullmatch(name)[1])


def good_and_bad(checkpoints: Path) -> tuple[list[int], dict[str, str]]:
    """The steps of the good checkpoints, newest first, and what is wrong with the others by name."""
    good, bad = good_folders(checkpoints)
    return [step_of(folder.name) for folder in good], bad
