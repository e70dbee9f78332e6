"""Writes images and what Pillow and torchvision make of them and of JPEG files there: image_reference.py FOLDER.

Each line of FOLDER/cases.txt: file, kind, numbers..., and the file of the expected bytes [height, width, channels].
"""
import pathlib
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageOps
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
cases = []
generator = np.random.default_rng(0)


def photograph(height, width):
    """Smooth colours with edges and some noise, so that every filter has something to do."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = [127 + 100 * np.sin(x / (7 + 3 * c) + c) * np.cos(y / (11 - 2 * c)) for c in range(3)]
    image = np.stack(planes, -1)
    image[height // 3 : height // 2, width // 4 : width // 2] = [250, 10, 60]
    return np.clip(image + generator.normal(0, 12, image.shape), 0, 255).astype(np.uint8)


def expect(name, kind, numbers, image):
    array = np.asarray(image)
    if array.ndim == 2:
        array = array[:, :, None]
    raw = f"{len(cases)}.raw"
    (folder / raw).write_bytes(array.tobytes())
    cases.append(" ".join([name, kind, *map(str, numbers), raw]))


def expect_decoded(name):
    for channels, mode in ((3, "RGB"), (1, "L")):
        image = Image.open(folder / name)
        if mode == "L" and image.mode == "RGB":
            image.draft("L", image.size)  # a JPEG's own luma; no effect on other formats
        image = ImageOps.exif_transpose(image)
        expect(name, "decode", [channels, image.height, image.width], image.convert(mode))


def save(name, image, **options):
    image.save(folder / name, **options)
    expect_decoded(name)


for path in sorted(folder.glob("*.jpg")):
    expect_decoded(path.name)

base = Image.fromarray(photograph(61, 83))
save("color.jpg", base, quality=90)
save("full_chroma.jpg", base, quality=90, subsampling=0)
save("progressive.jpg", base, quality=85, progressive=True)
save("grey.jpg", base.convert("L"), quality=90)
save("cmyk.jpg", base.convert("CMYK"), quality=95)
for orientation in range(1, 9):
    exif = Image.Exif()
    exif.endian = ">" if orientation % 2 else "<"  # cameras write both byte orders, and other tags before this one
    exif[0x010F] = "a maker"
    exif[0x0112] = orientation
    save(f"turned{orientation}.jpg", base, quality=90, exif=exif)
    save(f"turned{orientation}.png", base, exif=exif)
save("color.png", base)
save("grey.png", base.convert("L"))
save("palette.png", base.quantize(50))
save("bits.png", base.convert("1"))
rgba = base.copy()
rgba.putalpha(Image.fromarray(generator.integers(0, 256, (61, 83), dtype=np.uint8)))
save("alpha.png", rgba)
save("grey_alpha.png", rgba.convert("LA"))
transparent = base.quantize(50)
transparent.info["transparency"] = 3
save("palette_transparent.png", transparent)



def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def save_deep(name, values, colour_type):
    """16 bits, which Pillow writes only for grey. It clips such values at 255, so expects value / 257, rounded."""
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 16, colour_type, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    (folder / name).write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)
    colours = values[:, :, : 3 if values.shape[2] > 2 else 1]
    expected = (colours / 257).round().astype(np.uint8)
    expect(name, "decode", [expected.shape[2], *values.shape[:2]], expected)


for name, channels, colour_type in (("grey", 1, 0), ("colour", 3, 2), ("grey_alpha", 2, 4), ("alpha", 4, 6)):
    save_deep(f"deep_{name}.png", generator.integers(0, 65536, (9, 14, channels), dtype=np.uint16), colour_type)

FILTERS = {"": InterpolationMode.BILINEAR, "_bicubic": InterpolationMode.BICUBIC}
for index, (height, width) in enumerate([(375, 500), (500, 333), (64, 64), (40, 300), (1100, 900)]):
    name = f"photo{index}.png"
    image = Image.fromarray(photograph(height, width))
    image.save(folder / name)
    for resize, crop in [(256, 224), (32, 32), (70, 64), (40, 48)]:
        for kind, mode in FILTERS.items():
            expect(name, "eval" + kind, [resize, crop], F.center_crop(F.resize(image, resize, mode), crop))
    for _ in range(4):
        crop_height, crop_width = (int(generator.integers(8, size + 1)) for size in (height, width))
        top = int(generator.integers(0, height - crop_height + 1))
        left = int(generator.integers(0, width - crop_width + 1))
        for size in (224, 31):
            for kind, mode in FILTERS.items():
                fitted = F.resized_crop(image, top, left, crop_height, crop_width, [size, size], mode)
                expect(name, "crop" + kind, [top, left, crop_height, crop_width, size], fitted)

(folder / "cases.txt").write_text("\n".join(cases) + "\n")
