"""Writes images, what Pillow, timm and torchvision make of them, and what their policies draw.

usage: augment_reference.py FOLDER AUGMIX; without "augmix" it leaves out what AugMix makes, which takes long.

cases.txt, a case a line: operation, argument, filter, channels, height, width, file before, file after.
arguments.txt, a line for each argument that a policy may draw for an image of 40 x 60: word, operation, argument.
rates.txt: word, operation, how many of it an image gets on average.
"""
import pathlib
import random
import sys
from unittest import mock

import numpy as np
from PIL import Image, ImageEnhance
from timm.data import auto_augment as timm
from timm.data.mixup import Mixup, cutmix_bbox_and_lam
from torchvision.transforms import InterpolationMode, autoaugment
from torchvision.transforms import functional as F

folder = pathlib.Path(sys.argv[1])
cases = []
generator = np.random.default_rng(3)
GREY = (124, 116, 104)
HEIGHT, WIDTH = 40, 60
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def picture(height, width):
    """Waves, a flat area, black, white and noise."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = [120 + 90 * np.sin(x / (4 + 2 * c) + c) * np.cos(y / (7 - 2 * c)) for c in range(3)]
    image = np.stack(planes, -1) + generator.normal(0, 6, (height, width, 3))
    image[2 : height // 3, 3 : width // 3] = [250, 10, 61]
    image[height // 2 :, width // 2 : width // 2 + 5] = 0
    image[: height // 4, width // 2 :] = 255
    return Image.fromarray(np.clip(image, 0, 255).astype(np.uint8))


def expect(operation, argument, before, after, filter="nearest"):
    number = len(cases)
    for name, image in (("before", before), ("after", after)):
        (folder / f"{number}.{name}").write_bytes(np.asarray(image).tobytes())
    channels = 3 if before.mode == "RGB" else 1
    cases.append(f"{operation} {argument!r} {filter} {channels} {before.height} {before.width} {number}.before {number}.after")


def expect_all(image):
    fill = GREY if image.mode == "RGB" else GREY[:1][0]
    for name, filter in FILTERS.items():
        options = {"resample": filter, "fillcolor": fill}
        for argument in (-0.3, 0.07, 0.27):
            expect("shear_x", argument, image, timm.shear_x(image, argument, **options), name)
            expect("shear_y", argument, image, timm.shear_y(image, argument, **options), name)
        for argument in (-0.4521, 0.1137, 0.4013):
            expect("translate_x", argument * image.width, image, timm.translate_x_rel(image, argument, **options), name)
            expect("translate_y", argument * image.height, image, timm.translate_y_rel(image, argument, **options), name)
        for argument in (-30.0, -3.0, 0.0, 11.7, 30.0):
            expect("rotate", argument, image, timm.rotate(image, argument, **options), name)
    for magnitude in (-0.99, -0.2, 0.3, 0.9):
        for name, ours in (("ShearX", "shear_x"), ("ShearY", "shear_y")):
            after = autoaugment._apply_op(image, name, magnitude, InterpolationMode.NEAREST, None)
            expect(ours, magnitude, image, after)
    for pixels in (-32.0, 5.5):
        for name, ours in (("TranslateX", "translate_x"), ("TranslateY", "translate_y")):
            after = autoaugment._apply_op(image, name, pixels, InterpolationMode.NEAREST, None)
            expect(ours, float(-int(pixels)), image, after)
    for degrees in (-135.0, -4.5, 31.5, 90.0, 121.5):
        expect("rotate", degrees, image, F.rotate(image, degrees))
    for factor in (0.0, 0.1, 0.73, 1.0, 1.4, 1.9):
        expect("brightness", factor, image, timm.brightness(image, factor))
        expect("contrast", factor, image, timm.contrast(image, factor))
        expect("sharpness", factor, image, timm.sharpness(image, factor))
        expect("saturation", factor, image, F.adjust_saturation(image, factor))
    for bits in range(1, 9):
        expect("posterize", bits, image, timm.posterize(image, bits))
    for threshold in (0, 1, 100.5, 128, 255, 256):
        expect("solarize", threshold, image, timm.solarize(image, threshold))
    for addition in (0, 33, 110):
        expect("solarize_add", addition, image, timm.solarize_add(image, addition))
    expect("auto_contrast", 0, image, timm.auto_contrast(image))
    expect("equalize", 0, image, timm.equalize(image))
    expect("invert", 0, image, timm.invert(image))
    for turn in (-0.5, -0.13, 0.0, 0.02, 0.3):
        expect("hue", turn, image, F.adjust_hue(image, turn))
    expect("grey", 0, image, F.to_grayscale(image, 3 if image.mode == "RGB" else 1))


expect_all(picture(HEIGHT, WIDTH))
expect_all(picture(53, 47).convert("L"))
for image in (picture(2, 9), picture(7, 1), Image.new("RGB", (8, 8), (7, 250, 99))):  # no histogram, no inner pixels
    for operation in ("auto_contrast", "equalize"):
        expect(operation, 0, image, getattr(timm, operation)(image))
    expect("sharpness", 1.7, image, ImageEnhance.Sharpness(image).enhance(1.7))
    expect("rotate", 25.0, image, timm.rotate(image, 25.0, resample=Image.Resampling.BICUBIC, fillcolor=GREY), "bicubic")
dark = Image.fromarray((np.asarray(picture(30, 30)) // 9 + 20).astype(np.uint8))
expect("auto_contrast", 0, dark, timm.auto_contrast(dark))
expect("equalize", 0, dark, timm.equalize(dark))

OPERATIONS = {
    "ShearX": "shear_x", "ShearY": "shear_y", "TranslateX": "translate_x", "TranslateY": "translate_y",
    "TranslateXRel": "translate_x", "TranslateYRel": "translate_y", "Rotate": "rotate", "Brightness": "brightness",
    "Color": "saturation", "Contrast": "contrast", "Sharpness": "sharpness", "Posterize": "posterize",
    "PosterizeOriginal": "posterize", "Solarize": "solarize", "SolarizeAdd": "solarize_add",
    "AutoContrast": "auto_contrast", "Equalize": "equalize", "Invert": "invert", "Identity": "identity",
}
arguments, rates = set(), {}


def note(word, operation, argument, rate):
    arguments.add((word, operation, float(argument)))
    rates[word, operation] = rates.get((word, operation), 0) + rate


def arguments_of(op):
    """What timm's operation may get at its magnitude, with either sign."""
    if op.level_fn is None:
        return {0.0}
    found = set()
    for draw in (0.0, 0.9):
        with mock.patch("random.random", return_value=draw):
            value = op.level_fn(min(op.magnitude, 10), op.hparams)[0]
        found.add(value * {"TranslateXRel": WIDTH, "TranslateYRel": HEIGHT}.get(op.name, 1))
    return found


def note_timm(word, op, rate):
    found = arguments_of(op)
    for argument in found:
        note(word, OPERATIONS[op.name.replace("Increasing", "")], argument, rate / len(found))


for word in ("rand-m9", "rand-m4-n3-p0.7", "rand-m7-inc1", "rand-m10-n1-inc1-p1", "rand", "rand-m14-inc1"):
    policy = timm.rand_augment_transform(word, {})
    for op in policy.ops:
        note_timm(word, op, policy.num_layers * op.prob / len(policy.ops))


# A chain of AugMix, which timm's factory lets move images less.
word = "augmix-m3-d2-mstd0"
augmix = timm.augment_and_mix_transform(word, {"translate_pct": 0.3})
for op in augmix.ops:
    note_timm(word, op, 2 / len(augmix.ops))

# What AugMix makes of an image: the mean and deviation of how far it is from it.
image = picture(HEIGHT, WIDTH)
(folder / "augmix.before").write_bytes(np.asarray(image).tobytes())
random.seed(4)
np.random.seed(4)
for word in ("augmix-m5", "augmix-m3-w2-d3-mstd0.5", "augmix-m8-w1-a0.4") if sys.argv[2] else ():
    policy = timm.augment_and_mix_transform(word, {"translate_pct": 0.3, "img_mean": GREY})
    changes = [np.abs(np.asarray(policy(image), np.float64) - np.asarray(image)).mean() for _ in range(1500)]
    rates["change-" + word, "change"], rates["change-" + word, "deviation_of_change"] = np.mean(changes), np.std(changes)


def note_torchvision(word, name, magnitudes, signed, rate):
    """`magnitudes`: those that are equally likely."""
    for magnitude in magnitudes:
        for value in (magnitude, -magnitude) if signed else (magnitude,):
            operation, argument = OPERATIONS[name], value
            if name in ("Brightness", "Color", "Contrast", "Sharpness"):
                argument = 1.0 + value
            elif name.startswith("Translate"):
                argument = -int(value)
            note(word, operation, argument, rate / len(magnitudes) / (2 if signed else 1))


space = autoaugment.TrivialAugmentWide()._augmentation_space(31)
for name, (magnitudes, signed) in space.items():
    note_torchvision("trivial", name, np.atleast_1d(magnitudes.numpy()).astype(float), signed, 1 / len(space))

# How levels vary: the mean and deviation of angles that timm draws.
for word in ("rand-m9-mstd0.5-p1", "rand-m6-mstd2.5-p1", "rand-m9-mstd101-p1", "rand-m9-mstd3-mmax20-p1"):
    rotate = next(op for op in timm.rand_augment_transform(word, {}).ops if op.name == "Rotate")
    angles = []
    rotate.aug_fn = lambda image, degrees, **_: angles.append(abs(degrees))
    for _ in range(20000):
        rotate(None)
    rates[word, "mean"], rates[word, "deviation"] = np.mean(angles), np.std(angles)

# The part of the image itself that timm's Mixup draws for images of 24 x 36.
for mixup, cutmix in ((0.8, 0.0), (0.0, 1.0), (0.2, 1.0)):
    mixer = Mixup(mixup, cutmix, prob=0.9)
    parts = []
    for _ in range(20000):
        part, cuts = mixer._params_per_batch()
        if cuts:
            _, part = cutmix_bbox_and_lam((3, 24, 36), part)
        parts.append(part)
    rates[f"mix-{mixup}-{cutmix}", "part"] = np.mean(parts)
    rates[f"mix-{mixup}-{cutmix}", "part_deviation"] = np.std(parts)

# Blurs with the deviations that the test asks for.
blurred = picture(31, 45)
for number, deviation in enumerate((folder / "deviations.txt").read_text().split()):
    for name, one in (("before", blurred), ("after", F.gaussian_blur(blurred, [23, 23], [float(deviation)] * 2))):
        (folder / f"blur{number}.{name}").write_bytes(np.asarray(one).tobytes())

(folder / "cases.txt").write_text("\n".join(cases) + "\n")
(folder / "arguments.txt").write_text("".join(f"{w} {o} {a!r}\n" for w, o, a in sorted(arguments)))
(folder / "rates.txt").write_text("".join(f"{w} {o} {r}\n" for (w, o), r in rates.items()))
