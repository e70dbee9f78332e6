"""Quantises matrices with the package bitsandbytes, by the kernels that it has for devices without own ones.

usage: quantized_reference.py FILE

Writes a list of cases for torch::pickle_load(): a matrix, what is stored of it, and the values that it then has.
Means are taken with one thread: on several, their last bits depend on the number of threads.
"""
import os
import random
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # the same operators, without a minute of compilation
import torch
from bitsandbytes import functional

TYPES = [torch.float32, torch.float16, torch.bfloat16]
BLOCKS = [32, 64, 128, 256, 512, 1024, 2048, 4096]
SHAPES = [(1, 1), (1, 2), (3, 1), (1, 31), (1, 33), (5, 13), (7, 64), (64, 64), (33, 65), (1, 4095), (3, 4097),
          (96, 130), (129, 128), (300, 111), (256, 257)]
rng = random.Random(1)
torch.manual_seed(1)
torch.set_num_threads(1)


def kernel(name):
    return torch.library.get_kernel(f"bitsandbytes::{name}", "IPU")  # there are none of its own for this device


def call(name, *arguments):
    return kernel(name).call_boxed(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), *arguments)


def normal(shape, book):
    return torch.randn(shape) * 10 ** rng.uniform(-4, 2)


def zeros(shape, book):
    return torch.zeros(shape)


def zero_rows(shape, book):
    values = torch.randn(shape)
    values[::2] = 0
    return values


def denormals(shape, book):
    return torch.randn(shape) * rng.choice([1e-45, 1e-42, 1e-39, 1e-38, 1e-7])


def one_huge(shape, book):
    values = torch.randn(shape)
    values.view(-1)[rng.randrange(values.numel())] = rng.choice([3e38, -3e38, 6e4, -6e4])
    return values


def equal(shape, book):
    return torch.full(shape, rng.choice([-0.3, 1.0, 0.02]))


def ties(shape, book):
    """Values in the middle between two of the code book, and the code book's own."""
    known = functional.get_4bit_type(book, device="cpu").sort().values
    known = torch.cat([known, (known[1:] + known[:-1]) / 2])
    values = known[torch.randint(len(known), shape)]
    values.view(-1)[::16] = 1
    return values * rng.choice([1.0, 0.5, 3.0])


def four_bits(matrix, block, book, nested):
    codes, scales = call("quantize_4bit", matrix, block, book, torch.uint8)
    case = {"matrix": matrix, "block": block, "book": book, "codes": codes.view(-1), "scales": scales}
    if nested:
        tree = functional.create_dynamic_map()
        offset = scales.mean()
        narrow, outer = call("quantize_blockwise", scales - offset, tree, 256)
        scales = call("dequantize_blockwise", narrow, outer, tree, 256, torch.float32) + offset
        case |= {"scales": narrow, "scale_scales": outer, "scale_offset": offset.view(1)}
    case["values"] = call("dequantize_4bit", codes, scales, block, book, matrix.shape, matrix.dtype)
    return case


def eight_bits(matrix):
    codes, scales, _ = call("int8_vectorwise_quant", matrix.half(), 0.0)
    values = call("int8_vectorwise_dequant", codes, scales)
    return {"matrix": matrix, "codes": codes, "scales": scales, "values": values.to(matrix.dtype)}


def cases():
    kinds = [normal, normal, normal, zeros, zero_rows, denormals, one_huge, equal, ties]
    for i in range(240):
        dtype, shape, book = rng.choice(TYPES), rng.choice(SHAPES), ("nf4", "fp4")[i % 2]
        matrix = kinds[i % len(kinds)](shape, book).to(dtype)
        matrix = matrix.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max)
        if i < 200:
            yield four_bits(matrix, rng.choice(BLOCKS), book, nested=i % 4 < 2)
        else:
            yield eight_bits(matrix.clamp(-6e4, 6e4))  # beyond fp16, a row's values are NaN
    # More scales than the mean adds up at once
    for book in "nf4", "fp4":
        yield four_bits(torch.randn(1200, 1001).bfloat16(), 32, book, nested=True)


torch.save(list(cases()), sys.argv[1])
