"""Silent damage to checkpoints: truncated files, flipped bits, leftover or lost files and folders."""

import random
import shutil
from pathlib import Path

import verifier


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def cut_short(folder: Path, chance: random.Random) -> str:
    path = chance.choice(files_of(folder))
    size = chance.choice([0, chance.randrange(path.stat().st_size), path.stat().st_size - 1])
    with open(path, "r+b") as file:
        file.truncate(size)
    return f"{path.name} cut to {size} bytes"


def flip_bit(folder: Path, chance: random.Random) -> str:
    path = chance.choice(files_of(folder))
    content = bytearray(path.read_bytes())
    bit = chance.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    return f"bit {bit} of {path.name} flipped"


def zero_page(folder: Path, chance: random.Random) -> str:
    path = chance.choice(files_of(folder))
    content = bytearray(path.read_bytes())
    begin = chance.randrange(0, len(content), 4096)
    end = min(begin + 4096, len(content))
    content[begin:end] = bytes(end - begin)
    path.write_bytes(content)
    return f"bytes {begin} to {end} of {path.name} zeroed"


def lose_file(folder: Path, chance: random.Random) -> str:
    path = chance.choice(files_of(folder))
    path.unlink()
    return f"{path.name} lost"


def swap_files(folder: Path, chance: random.Random) -> str:
    """Replaces a file, of any rank, with the same file, often of the same size, from another checkpoint."""
    others = [path for path in verifier.finished(folder.parent) if path != folder]
    name = chance.choice([path.name for path in files_of(folder) if not path.name.startswith("generators")])
    shutil.copyfile(chance.choice(others) / name, folder / name)
    return f"{name} taken from another checkpoint"


def damage(checkpoints: Path, way, chance: random.Random) -> str:
    """Damages the newest good checkpoint, or several, but leaves the oldest good one alone."""
    good, _ = verifier.good_folders(checkpoints)
    told = []
    for folder in good[: chance.randint(1, len(good) - 1)]:
        told.append(f"{folder.name}: {way(folder, chance)}")
    return "; ".join(told)


def leave_debris(checkpoints: Path, chance: random.Random) -> str:
    """What is no checkpoint, under names that look like one."""
    source = verifier.good_folders(checkpoints)[0][0]
    newest = verifier.step_of(source.name)
    ahead = checkpoints / f"step-{newest + chance.randint(1, 900):08}"
    if ahead.exists() or ahead.is_symlink() or Path(f"{ahead}.partial").exists():
        return f"nothing: there is a {ahead.name}"
    kind = chance.choice(["empty folder", "leftover", "file", "copy", "no manifest", "link", "odd name"])
    if kind == "empty folder":
        ahead.mkdir()
    elif kind == "leftover":
        shutil.copytree(source, Path(f"{ahead}.partial"))
    elif kind == "file":
        ahead.write_text("not a folder")
    elif kind == "copy":  # valid, but of another step
        shutil.copytree(source, ahead)
    elif kind == "no manifest":
        shutil.copytree(source, ahead)
        (ahead / "manifest.json").rename(ahead / "manifest.json.partial")
    elif kind == "link":
        ahead.symlink_to("nowhere")
    elif kind == "odd name":
        shutil.copytree(source, checkpoints / f"step-{newest}", dirs_exist_ok=True)
    return f"{kind} at {ahead.name}"
