"""Trains the small model of the tests as recorded by another program, with PyTorch's DistributedDataParallel over Gloo in
as many processes. Compares the gradients of every step.

FILE RANKS
"""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch.nn.parallel import DistributedDataParallel

STEPS, TOLERANCE = 20, 1e-9


class Model(torch.nn.Module):
    def __init__(self, tensors):
        super().__init__()
        weights = [tensors[f"weight.{i}"] for i in range(8)]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(w.shape[1], w.shape[0]).double() for w in weights[::2])
        with torch.no_grad():
            for parameter, weight in zip(self.parameters(), weights):
                parameter.copy_(weight)

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        return self.layers[-1](x)


def optimizer_of(model):
    weights, biases = list(model.parameters())[::2], list(model.parameters())[1::2]
    groups = [{"params": weights, "weight_decay": 0.1}, {"params": biases, "weight_decay": 0}]
    return torch.optim.AdamW(groups, lr=0.02)


def share_of(tensors, step, rank, ranks):
    inputs, targets = tensors[f"inputs.{step}"], tensors[f"targets.{step}"]
    rows = len(inputs) // ranks
    return inputs[rank * rows:(rank + 1) * rows], targets[rank * rows:(rank + 1) * rows]


def compare(tensors, prefix, ours):
    for i, tensor in enumerate(ours):
        difference = (tensor - tensors[f"{prefix}.{i}"]).abs().max().item()
        assert difference <= TOLERANCE, f"{prefix}.{i} differs by {difference:.1e}"


def ddp_rank(rank, ranks, path, meeting):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    tensors = load_file(path)
    model = DistributedDataParallel(Model(tensors), bucket_cap_mb=0.002)
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        inputs, targets = share_of(tensors, step, rank, ranks)
        optimizer.zero_grad()
        ((model(inputs) - targets) ** 2).sum(dim=1).mean().backward()
        compare(tensors, f"gradient.{step}", [p.grad for p in model.parameters()])
        optimizer.step()
    compare(tensors, "end", [p.detach() for p in model.parameters()])
    dist.destroy_process_group()


def ddp(path, ranks):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as folder:
        # With fork, because a new process takes seconds to import torch.
        arguments = (ranks, path, os.path.join(folder, "meeting"))
        mp.start_processes(ddp_rank, arguments, nprocs=ranks, start_method="fork")


if __name__ == "__main__":
    ddp(sys.argv[1], int(sys.argv[2]))
