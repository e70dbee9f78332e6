"""Masks, and what Pillow reads of them and makes of them: segmentation_reference.py FOLDER.

FOLDER/NAME.png: masks; FOLDER/NAME.numbers: their numbers as bytes, row by row; FOLDER/cases.txt, a case a line: name, box
(left, top, right, bottom), width, height, file with the numbers of that box resized to that size, nearest.
"""
import pathlib
import sys

import numpy as np
from PIL import Image

folder = pathlib.Path(sys.argv[1])
draw = np.random.default_rng(7)
HEIGHT, WIDTH = 37, 53
numbers = draw.integers(0, 256, (HEIGHT, WIDTH), dtype=np.uint8)
palette = list(draw.integers(0, 256, 768))
palette[3:9] = palette[0:6]  # equal colours are different classes

grey = Image.fromarray(numbers)
named = {"grey": grey, "binary": grey.point(lambda value: value > 99, "1")}
for name, most in [("palette", 256), ("palette16", 16), ("palette4", 4)]:
    image = Image.fromarray(numbers & (most - 1))
    image.putpalette(palette[:3 * most])
    named[name] = image
cases = []
for name, image in named.items():
    bits = {"palette16": 4, "palette4": 2}.get(name)
    image.save(folder / f"{name}.png", **({"bits": bits} if bits else {}))
    read = Image.open(folder / f"{name}.png")
    assert read.mode == {"grey": "L", "binary": "1"}.get(name, "P")
    (folder / f"{name}.numbers").write_bytes(np.array(read).astype(np.uint8).tobytes())
# No centre of a pixel lies between two others: Pillow adds up rounded steps, so that chance would decide.
for box, size in [((0, 0, WIDTH, HEIGHT), (53, 37)), ((0, 0, WIDTH, HEIGHT), (20, 31)), ((5, 3, 41, 30), (64, 64)),
                  ((7, 1, 8, 2), (3, 5)), ((10, 0, 53, 37), (1, 1)), ((0, 11, 50, 36), (48, 26))]:
    file = f"{len(cases)}.numbers"
    resized = grey.resize(size, Image.Resampling.NEAREST, box=box)
    (folder / file).write_bytes(np.array(resized).tobytes())
    cases.append(" ".join(map(str, ["grey", *box, *size, file])))
(folder / "cases.txt").write_text("\n".join(cases) + "\n")
