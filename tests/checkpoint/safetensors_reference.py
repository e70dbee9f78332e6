"""The safetensors package as reference: `OURS THEIRS` compares OURS with the agreed tensors and writes them to
THEIRS."""
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]


def agreed_tensors():
    tensors = {f"{dtype}".removeprefix("torch."): torch.arange(24).reshape(2, 3, 4).to(dtype) for dtype in DTYPES}
    tensors["bool"] = (torch.arange(24) % 3 == 0).reshape(2, 3, 4)
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.zeros(0, 5)
    tensors["channels_last"] = torch.arange(120, dtype=torch.float32).reshape(2, 3, 4, 5)
    tensors["transposed"] = torch.arange(6, dtype=torch.float32).reshape(2, 3).t().contiguous()
    tensors['näme "quoted"'] = torch.ones(3)
    return tensors


def main():
    ours, theirs = sys.argv[1:]
    expected = agreed_tensors()
    save_file(expected, theirs, metadata={"format": "pt"})
    with safe_open(ours, "pt") as file:
        assert file.metadata() == {"format": "pt"}, file.metadata()
    found = load_file(ours)
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape, name
        assert torch.equal(found[name].view(-1).view(torch.uint8), tensor.view(-1).view(torch.uint8)), name


main()
