"""timm opens the folder that `gputrain export --format timm` has written, by the folder alone.

usage: timm_folder_reference.py FOLDER
"""
import sys

import timm
import torch
from safetensors.torch import load_file
from timm.data import create_transform, resolve_data_config

folder = sys.argv[1]
model = timm.create_model(f"local-dir:{folder}", pretrained=True)
weights = load_file(f"{folder}/model.safetensors")
assert weights.keys() == model.state_dict().keys()
assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
reading = resolve_data_config({}, model=model)
assert reading["input_size"] == (3, 16, 16) and list(reading["mean"]) == [0.5, 0.4, 0.3] and list(reading["std"]) == [0.2, 0.3, 0.4]
fitting = {type(one).__name__: one for one in create_transform(**reading).transforms}
assert fitting["Resize"].size in (18, [18]) and fitting["Resize"].interpolation.value == "bicubic", fitting
assert model(torch.zeros(1, 3, 16, 16)).shape == (1, 2)
