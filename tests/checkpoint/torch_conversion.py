"""Runs CODE, the advised conversion of a file of torch.save, on such files: CODE FOLDER."""
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

code, folder = sys.argv[1], Path(sys.argv[2])
matrix = torch.arange(6.0).reshape(2, 3)
weights = {"tied": matrix, "embedding": matrix, "transposed": matrix.t()}
files = {
    "plain.bin": weights,
    "lightning.ckpt": {"state_dict": weights, "epoch": 3, "optimizer_states": [{"step": matrix}]},
    "nanogpt.pt": {"model": weights, "optimizer": {"step": matrix}, "iter_num": 7},
    "tutorial.pt": {"epoch": 3, "model_state_dict": weights},
}
for name, content in files.items():
    torch.save(content, folder / name)
    written = folder / (name + ".safetensors")
    exec(code.replace("FILE", repr(str(folder / name)), 1).replace("model.safetensors", str(written)))
    found = load_file(written)
    assert found.keys() == weights.keys(), (name, found.keys())
    assert all(torch.equal(found[key], weights[key]) for key in weights), name
