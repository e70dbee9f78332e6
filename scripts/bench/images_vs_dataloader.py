"""Compares reading, decoding and augmenting photographs with torch.utils.data.DataLoader on this machine's CPUs: images
per second, at the best number of workers of each side. Programs run in turns; the ratio is that of the medians.

usage: images_vs_dataloader.py --binary build/release/bin/gputrain --images FILE.tar [--recipe NAME] [--rounds N]

Recipes, on crops of 224 pixels: crop (random_resized_crop and hflip, as torchvision's), rand-erase (also timm's
rand-m9-mstd0.5-inc1 and random erasing of a quarter of the images), trivial (also TrivialAugmentWide). The tar file has
a folder of JPEG files for each class; the DataLoader reads them from a folder, which is unpacked first.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZE, BATCH = 224, 64
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RECIPES = {
    "crop": {},
    "rand-erase": {"auto_augment": "rand-m9-mstd0.5-inc1", "random_erasing": {"probability": 0.25}},
    "trivial": {"auto_augment": "trivial"},
}


def transform_of(recipe: str):
    from timm.data import auto_augment
    from timm.data.random_erasing import RandomErasing
    from torchvision import transforms

    steps = [transforms.RandomResizedCrop(SIZE, (0.08, 1.0)), transforms.RandomHorizontalFlip()]
    if recipe == "rand-erase":
        # timm may keep no bit at all, which recent versions of Pillow refuse.
        posterize = auto_augment.posterize
        auto_augment.NAME_TO_OP["PosterizeIncreasing"] = lambda image, bits, **_: posterize(image, max(1, bits))
        mean = tuple(round(255 * value) for value in MEAN)
        steps.append(auto_augment.rand_augment_transform("rand-m9-mstd0.5-inc1", {"img_mean": mean}))
    if recipe == "trivial":
        steps.append(transforms.TrivialAugmentWide())
    steps += [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    if recipe == "rand-erase":
        steps.append(RandomErasing(0.25, device="cpu"))
    return transforms.Compose(steps)


def time_dataloader(folder: str, recipe: str, workers: int, images: int):
    """In a process of its own; prints images per second. The first epoch starts the workers and is not timed."""
    import torch
    import torchvision

    torch.set_num_threads(1)
    dataset = torchvision.datasets.ImageFolder(folder, transform_of(recipe))
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=workers,
                                         persistent_workers=workers > 0)
    for _ in loader:
        pass
    seen, begin = 0, time.monotonic()
    while seen < images:
        for batch, _ in loader:
            seen += len(batch)
    print(seen / (time.monotonic() - begin))


def dataloader_rate(folder: Path, recipe: str, workers: int, images: int) -> float:
    command = [sys.executable, __file__, "--time-dataloader", str(folder), "--recipe", recipe, "--workers", str(workers),
               "--samples", str(images)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def gputrain_rate(binary: str, tar: str, recipe: str, workers: int, images: int, folder: Path) -> float:
    augment = {"random_resized_crop": [0.08, 1.0], "hflip": 0.5} | RECIPES[recipe]
    data = {"train": {"path": tar, "format": "tar"}, "image": {"size": SIZE, "augment": augment}, "num_workers": workers}
    job = {"schema": 1, "name": "images", "device": "cpu", "model": {"type": "resnet18"}, "data": data,
           "train": {"max_steps": 10, "global_batch_size": BATCH}, "optimizer": {"type": "sgd", "lr": 0.1},
           "lr_scheduler": {"type": "constant"}}
    path = folder / "job.yaml"
    path.write_text(json.dumps(job))  # JSON is valid YAML
    command = [binary, "bench", "data", str(path), "--samples", str(images), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["loader"]


def compare(arguments, folder: Path):
    root = folder / "images"
    root.mkdir()
    subprocess.run(["tar", "-xf", arguments.images, "-C", str(root)], check=True)
    while len(children := list(root.iterdir())) == 1 and children[0].is_dir():
        root = children[0]
    runs = {
        "gputrain": lambda workers: gputrain_rate(arguments.binary, arguments.images, arguments.recipe, workers,
                                                  arguments.samples, folder),
        "DataLoader": lambda workers: dataloader_rate(root, arguments.recipe, workers, arguments.samples),
    }
    cores = len(os.sched_getaffinity(0))
    choices = sorted({0, 1, 2, cores, 2 * cores})
    best = {}
    for name, run in runs.items():
        rates = {workers: run(workers) for workers in choices}
        best[name] = max(rates, key=rates.get)
        print(f"{name:10} " + ", ".join(f"{workers} workers: {rate:.0f}/s" for workers, rate in rates.items()), flush=True)
    measured = {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            measured[name].append(run(best[name]))
    for name, rates in measured.items():
        print(f"{name:10} {best[name]} workers: {statistics.median(rates):.0f} images/s "
              f"({min(rates):.0f} to {max(rates):.0f}), recipe {arguments.recipe}, {cores} cores")
    print(f"ratio {statistics.median(measured['gputrain']) / statistics.median(measured['DataLoader']):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary")
    parser.add_argument("--images", help="a tar file with a folder of JPEG files for each class")
    parser.add_argument("--recipe", choices=RECIPES, default="crop")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=1000, help="images of a run, without those before it is timed")
    parser.add_argument("--time-dataloader", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.time_dataloader:
        time_dataloader(arguments.time_dataloader, arguments.recipe, arguments.workers, arguments.samples)
        return
    if not (arguments.binary and arguments.images):
        parser.error("--binary and --images are needed")
    with tempfile.TemporaryDirectory(prefix="gputrain-bench-") as folder:
        compare(arguments, Path(folder))


if __name__ == "__main__":
    main()
