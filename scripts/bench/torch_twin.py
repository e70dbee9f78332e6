"""Trains with PyTorch the same model, batch, optimizer and precision as a gputrain benchmark job,
in the usual PyTorch style. Prints one JSON object per line: {"kind": "ready"} just before the first step, then {"kind":
"step", "step", "time", "loss"} after the first step and after every `log_interval` steps. With "timed" in the spec,
instead prints {"kind": "timed", "seconds"} at the end: the time of each step after the `warmup`, by events on a GPU.

usage: torch_twin.py SPEC.json      (specs are made by cpu_vs_pytorch.py and compare.py)
"""

import contextlib
import json
import math
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        batch, time_steps, width = x.shape
        q, k, v = (
            part.view(batch, time_steps, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, time_steps, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2: learned positions, pre-norm blocks, head tied to the token embedding."""

    def __init__(self, n_layer: int, n_head: int, n_embd: int, block_size: int, vocab_size: int):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, n_embd)
        self.positions = nn.Embedding(block_size, n_embd)
        self.blocks = nn.ModuleList(Block(n_embd, n_head) for _ in range(n_layer))
        self.norm = nn.LayerNorm(n_embd)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * n_layer) if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, x, y):
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        logits = F.linear(self.norm(h), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


class ResNet(nn.Module):
    def __init__(self, depth: int, num_classes: int, cifar_stem: bool):
        super().__init__()
        import torchvision

        self.net = getattr(torchvision.models, f"resnet{depth}")(num_classes=num_classes)
        if cifar_stem:
            self.net.conv1 = nn.Conv2d(3, 64, 3, stride=1, padding=1, bias=False)
            self.net.maxpool = nn.Identity()

    def forward(self, x, y):
        return F.cross_entropy(self.net(x), y)


class Bert(nn.Module):
    """BERT-base with its masked-language head over every position, from transformers."""

    def __init__(self, vocab_size: int, block_size: int):
        super().__init__()
        from transformers import BertConfig, BertForMaskedLM

        self.net = BertForMaskedLM(BertConfig(vocab_size=vocab_size, max_position_embeddings=block_size))

    def forward(self, x, y):
        return self.net(input_ids=x, labels=y).loss


class TextBlocks(torch.utils.data.Dataset):
    def __init__(self, path: str, length: int):
        text = Path(path).read_text()
        alphabet = {character: index for index, character in enumerate(sorted(set(text)))}
        self.tokens = torch.tensor([alphabet[character] for character in text])
        self.length = length

    def __len__(self):
        return (len(self.tokens) - 1) // self.length

    def __getitem__(self, index):
        block = self.tokens[index * self.length : (index + 1) * self.length + 1]
        return block[:-1], block[1:]


def image_folder(path: str, size: int):
    import torchvision
    from torchvision import transforms

    return torchvision.datasets.ImageFolder(
        path,
        transforms.Compose([
            transforms.RandomCrop(size, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
        ]),
    )


def endless_batches(spec: dict, device: torch.device):
    data = spec["data"]
    if data["kind"] == "synthetic":  # one batch that stays on the device: no input cost
        batch = spec["batch"]
        if spec["model"]["kind"] in {"gpt", "bert"}:
            tokens = torch.randint(spec["model"]["vocab_size"], (batch, spec["model"]["block_size"] + 1), device=device)
            pair = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        else:
            pair = (torch.randn(batch, 3, data["size"], data["size"], device=device),
                    torch.randint(spec["model"]["num_classes"], (batch,), device=device))
            if spec["channels_last"]:
                pair = pair[0].to(memory_format=torch.channels_last), pair[1]
        while True:
            yield pair
    dataset = TextBlocks(data["path"], data["length"]) if data["kind"] == "text" else image_folder(data["path"], data["size"])
    loader = torch.utils.data.DataLoader(dataset, batch_size=spec["batch"], shuffle=True, drop_last=True,
                                         num_workers=spec["workers"], persistent_workers=spec["workers"] > 0)
    while True:
        for x, y in loader:
            yield (x.to(memory_format=torch.channels_last) if spec["channels_last"] else x), y


def make_optimizer(model: nn.Module, spec: dict):
    options = dict(spec["optimizer"])
    kind = options.pop("type")
    decay = options.pop("weight_decay")
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": decay},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    return {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[kind](groups, fused=True, **options)


class StepClock:
    """Times single steps without synchronising the device."""

    def __init__(self, device: torch.device):
        self.on_gpu = device.type == "cuda"
        self.marks = []

    def mark(self):
        self.marks.append(torch.cuda.Event(enable_timing=True) if self.on_gpu else time.perf_counter())
        if self.on_gpu:
            self.marks[-1].record()

    def seconds(self) -> list[float]:
        if not self.on_gpu:
            return [b - a for a, b in zip(self.marks, self.marks[1:])]
        torch.cuda.synchronize()
        return [a.elapsed_time(b) / 1e3 for a, b in zip(self.marks, self.marks[1:])]


def say(**fields):
    print(json.dumps(fields), flush=True)


def main():
    spec = json.loads(Path(sys.argv[1]).read_text())
    torch.manual_seed(1337)
    device = torch.device(spec["device"])
    model_spec = dict(spec["model"])
    model = {"gpt": Gpt, "bert": Bert, "resnet": ResNet}[model_spec.pop("kind")](**model_spec).to(device)
    if spec["channels_last"]:
        model = model.to(memory_format=torch.channels_last)
    optimizer = make_optimizer(model, spec)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(spec["precision"])
    autocast = (lambda: torch.autocast(device.type, dtype)) if dtype else contextlib.nullcontext
    scaler = torch.amp.GradScaler(device.type, enabled=spec["precision"] == "fp16")
    forward = torch.compile(model) if spec["compile"] else model
    torch.backends.cudnn.benchmark = True
    batches = endless_batches(spec, device)

    first = next(batches)  # starts the loader's workers
    say(kind="ready")
    timed, clock, losses = spec.get("timed", False), StepClock(device), []
    clock.mark()
    for step in range(1, spec["steps"] + 1):
        x, y = first if step == 1 else next(batches)
        with autocast():
            loss = forward(x, y)
        scaler.scale(loss).backward()
        if spec["max_grad_norm"]:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), spec["max_grad_norm"])
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        clock.mark()
        if timed:
            losses.append(loss.detach())
        elif step == 1 or step % spec["log_interval"] == 0:
            value = loss.item()  # synchronises the device
            say(kind="step", step=step, time=time.time(), loss=value)
    if timed:
        say(kind="timed", seconds=clock.seconds()[spec["warmup"]:], first_loss=losses[0].item(), last_loss=losses[-1].item(),
            peak_bytes=torch.cuda.max_memory_allocated() if device.type == "cuda" else 0)


if __name__ == "__main__":
    main()
