"""torchvision's and timm's Vision Transformers as reference, small and with random weights.

make DIR:  for each case a folder DIR/<name> with case.json (options of our model and sizes of an image), the weights as the
           library writes them (model.safetensors) and expected.safetensors: inputs, targets, logits, loss and gradients,
           computed in fp64. Of timm's models case.json also has the factor of the rate of each parameter at layer_decay 0.5.
check DIR: strictly loads what gputrain wrote to DIR/<name>/ours, and compares the logits with those gputrain computed.
"""
import json
import sys
from pathlib import Path

import timm.models.vision_transformer as timm_vit
import timm.optim
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torchvision.models.vision_transformer import VisionTransformer, interpolate_embeddings

CLASSES, PATCH, DEPTH, HEADS, CHANNELS, INNER = 7, 8, 3, 4, 48, 120
OURS = dict(patch_size=PATCH, n_layer=DEPTH, n_head=HEADS, n_embd=CHANNELS, n_inner=INNER)
# Options of our model, height and width of images, those that the weights were trained with, options of timm's model.
CASES = {
    "torchvision": ({}, (32, 32), (32, 32), None),
    "torchvision_resized": ({}, (48, 48), (32, 32), None),
    "torchvision_smaller": ({}, (24, 24), (40, 40), None),
    "timm": (dict(layout="timm"), (32, 48), (32, 48), {}),
    "timm_mean": (dict(pooling="mean"), (32, 32), (32, 32), dict(global_pool="avg")),
    "timm_without_bias": (dict(qkv_bias=False), (32, 32), (32, 32), dict(qkv_bias=False)),
    "timm_resized": (dict(layout="timm"), (48, 64), (32, 32), {}),
    "timm_smaller": (dict(layout="timm"), (16, 24), (40, 40), {}),
}


def model_of(name, size):
    options = CASES[name][3]
    if options is None:
        return VisionTransformer(size[0], PATCH, DEPTH, HEADS, CHANNELS, INNER, num_classes=CLASSES)
    return timm_vit.VisionTransformer(size, PATCH, num_classes=CLASSES, embed_dim=CHANNELS, depth=DEPTH, num_heads=HEADS,
                                      mlp_ratio=INNER / CHANNELS, **options)


def resized(name, model, weights):
    if CASES[name][3] is None:
        return interpolate_embeddings(CASES[name][1][0], PATCH, weights)
    return timm_vit.checkpoint_filter_fn(weights, model)


def make(name, folder):
    ours, size, trained_size, _ = CASES[name]
    trained = model_of(name, trained_size)
    with torch.no_grad():
        for tensor in trained.parameters():  # zeros in class token and head would hide what depends on them
            tensor.add_(torch.randn_like(tensor), alpha=0.1)
    weights = {key: value.clone() for key, value in trained.state_dict().items()}
    save_file(weights, folder / "model.safetensors")
    model = model_of(name, size)
    model.load_state_dict(weights if size == trained_size else resized(name, model, weights), strict=True)
    model.double().train()  # no dropout
    inputs, targets = torch.randn(4, 3, *size, dtype=torch.double), torch.tensor([3, 6, -100, 0])
    logits = model(inputs)
    loss = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=0.1)
    loss.backward()
    tensors = {"inputs": inputs, "targets": targets, "logits": logits.detach(), "loss": loss.detach()}
    tensors |= {f"gradient/{key}": parameter.grad for key, parameter in model.named_parameters()}
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "expected.safetensors")
    told = {"options": OURS | ours, "shape": [3, *size], "classes": CLASSES, "factors": {}}
    if CASES[name][3] is not None:
        names = {parameter: key for key, parameter in model.named_parameters()}
        told["factors"] = {names[parameter]: group["lr_scale"]
                           for group in timm.optim.param_groups_layer_decay(model, layer_decay=0.5)
                           for parameter in group["params"]}
    (folder / "case.json").write_text(json.dumps(told))


def check(name, folder):
    model = model_of(name, CASES[name][1])
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
    ours = load_file(folder / "results.safetensors")
    with torch.no_grad():
        logits = model.eval()(ours["inputs"])
    error = ((logits - ours["logits"]).norm() / logits.norm()).item()
    print(f"{name}: relative error of the logits {error:.1e}")
    return error <= 1e-5


def main():
    action, root = sys.argv[1], Path(sys.argv[2])
    torch.manual_seed(11)
    if action == "check":
        sys.exit(not all([check(name, root / name / "ours") for name in CASES]))
    for name in CASES:
        (root / name).mkdir()
        make(name, root / name)


main()
