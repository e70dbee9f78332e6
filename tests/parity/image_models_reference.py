"""torchvision's ConvNeXt, MobileNetV3 and EfficientNetV2, a torch.nn.Sequential, and a U-Net of torch's layers, as
reference, with random weights.

make DIR:  for each case a folder DIR/<name> with case.json (our model and its options), the weights as torchvision writes
           them (model.safetensors) and expected.safetensors: inputs, targets, logits in evaluation and in training, loss,
           gradients and the buffers after that step, computed in fp64; and DIR/published.json: shapes of all tensors,
           probabilities of dropout, image size and billions of multiplications of each published model.
           DIR/timm has the weights of a ConvNeXt of timm, images and its logits.
check DIR: strictly loads what gputrain wrote to DIR/<name>/ours, compares the logits with those gputrain computed, and the
           initial values with those that torchvision draws.
"""
import json
import sys
from pathlib import Path

import timm.models.convnext as timm_convnext
import torch
import torch.nn.functional as F
import torchvision.models as models
from safetensors.torch import load_file, save_file
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.ops import StochasticDepth

CLASSES, SIZE = 7, 64
SMALL_CONVNEXT = [CNBlockConfig(16, 24, 2), CNBlockConfig(24, 40, 1), CNBlockConfig(40, None, 2)]


class GlobalAveragePool(torch.nn.Module):
    def forward(self, x):
        return x.mean((2, 3))


def layer(type_, **options):
    return {"type": type_, **options}


# Our layer, torch's layer.
LAYERS = [
    (layer("conv2d", channels=12, kernel_size=5, stride=2, padding=1), lambda: torch.nn.Conv2d(3, 12, 5, 2, 1)),
    (layer("batch_norm"), lambda: torch.nn.BatchNorm2d(12)),
    (layer("relu"), torch.nn.ReLU),
    (layer("conv2d", channels=8, groups=4, bias=False), lambda: torch.nn.Conv2d(12, 8, 3, padding=1, groups=4, bias=False)),
    (layer("hardswish"), torch.nn.Hardswish),
    (layer("max_pool2d", kernel_size=3, stride=2, padding=1), lambda: torch.nn.MaxPool2d(3, 2, 1)),
    (layer("relu"), torch.nn.ReLU),
    (layer("conv2d", channels=10, kernel_size=1), lambda: torch.nn.Conv2d(8, 10, 1)),
    (layer("batch_norm"), lambda: torch.nn.BatchNorm2d(10)),
    (layer("silu"), torch.nn.SiLU),
    (layer("global_avg_pool"), GlobalAveragePool),
    (layer("flatten"), torch.nn.Flatten),
    (layer("linear", features=20), lambda: torch.nn.Linear(10, 20)),
    (layer("tanh"), torch.nn.Tanh),
    (layer("relu"), torch.nn.ReLU),
    (layer("layer_norm"), lambda: torch.nn.LayerNorm(20)),
    (layer("gelu"), torch.nn.GELU),
    (layer("dropout", p=0), lambda: torch.nn.Dropout(0)),
    (layer("linear"), lambda: torch.nn.Linear(20, CLASSES)),
]


class Convs(torch.nn.Module):
    def __init__(self, inputs, outputs, up=None):
        super().__init__()
        if up is not None:
            self.up = up
        self.conv1 = torch.nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(outputs)
        self.conv2 = torch.nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = torch.nn.BatchNorm2d(outputs)
        for conv in (self.conv1, self.conv2):
            torch.nn.init.kaiming_normal_(conv.weight)

    def forward(self, x):
        return self.norm2(self.conv2(self.norm1(self.conv1(x)).relu())).relu()


class UNet(torch.nn.Module):
    """Logits [batch, height, width, classes]."""

    def __init__(self, channels, bilinear):
        super().__init__()
        self.bilinear = bilinear
        self.down = torch.nn.ModuleList(Convs(inputs, outputs) for inputs, outputs in zip([3] + channels, channels))
        self.up = torch.nn.ModuleList()
        for outputs, below in zip(channels, channels[1:]):
            up = (torch.nn.Conv2d(below, outputs, 1, bias=False) if bilinear else
                  torch.nn.ConvTranspose2d(below, outputs, 2, stride=2))
            self.up.append(Convs(2 * outputs, outputs, up))
        self.head = torch.nn.Conv2d(channels[0], CLASSES, 1)

    def forward(self, x):
        levels = [self.down[0](x)]
        for convs in self.down[1:]:
            levels.append(convs(F.max_pool2d(levels[-1], 2, ceil_mode=True)))
        x = levels.pop()
        for convs in reversed(self.up):
            level = levels.pop()
            if self.bilinear:
                x = F.conv2d(F.interpolate(x, scale_factor=2, mode="bilinear"), convs.up.weight)
            else:
                x = convs.up(x)
            x = convs(torch.cat([level, x[:, :, :level.shape[2], :level.shape[3]]], dim=1))
        return self.head(x).permute(0, 2, 3, 1)


# Our model and its options, torchvision's model without dropout.
CASES = {
    "convnext": ("convnext", dict(blocks=[2, 1, 2], channels=[16, 24, 40], drop_path=0),
                 lambda: ConvNeXt(SMALL_CONVNEXT, num_classes=CLASSES)),
    "mobilenet_v3_large": ("mobilenet_v3_large", dict(dropout=0),
                           lambda: models.mobilenet_v3_large(num_classes=CLASSES, dropout=0.0)),
    "mobilenet_v3_small": ("mobilenet_v3_small", dict(dropout=0),
                           lambda: models.mobilenet_v3_small(num_classes=CLASSES, dropout=0.0)),
    "efficientnet_v2_s": ("efficientnet_v2_s", dict(dropout=0, drop_path=0),
                          lambda: models.efficientnet_v2_s(num_classes=CLASSES, dropout=0.0, stochastic_depth_prob=0.0)),
    "sequential": ("sequential", dict(layers=[ours for ours, _ in LAYERS]),
                   lambda: torch.nn.Sequential(*[theirs() for _, theirs in LAYERS])),
    "unet": ("unet", dict(channels=[8, 16, 24]), lambda: UNet([8, 16, 24], bilinear=False)),
    "unet_bilinear": ("unet", dict(channels=[8, 16, 24, 24], upsampling="bilinear"),
                      lambda: UNet([8, 16, 24, 24], bilinear=True)),
}
ODD = (29, 43)  # height and width of the U-Nets' images
PUBLISHED = ["convnext_tiny", "convnext_small", "convnext_base", "convnext_large", "mobilenet_v3_large",
             "mobilenet_v3_small", "efficientnet_v2_s", "efficientnet_v2_m", "efficientnet_v2_l"]


def make(name, folder):
    type_, options, model_of = CASES[name]
    model = model_of()
    with torch.no_grad():
        for tensor in model.parameters():  # zeros, ones and a millionth would hide what depends on them
            tensor.add_(torch.randn_like(tensor), alpha=0.1)
        for key, tensor in model.named_buffers():
            if key.endswith("running_mean"):
                tensor.normal_(0, 0.1)
            elif key.endswith("running_var"):
                tensor.uniform_(0.5, 1.5)
    save_file({key: value.clone() for key, value in model.state_dict().items()}, folder / "model.safetensors")
    model.double().eval()
    labels_pixels = type_ == "unet"
    height, width = ODD if labels_pixels else (SIZE, SIZE)
    inputs, targets = torch.randn(4, 3, height, width, dtype=torch.double), torch.tensor([3, 6, -100, 0])
    if labels_pixels:
        targets = torch.randint(CLASSES, (4, height, width))
        targets[:, :7] = -100
    with torch.no_grad():
        evaluated = model(inputs)
    logits = model.train()(inputs)
    loss = F.cross_entropy(logits.movedim(-1, 1), targets, reduction="sum", label_smoothing=0.1)
    loss.backward()
    tensors = {"inputs": inputs, "targets": targets, "evaluated": evaluated, "logits": logits.detach(), "loss": loss.detach()}
    tensors |= {f"gradient/{key}": parameter.grad for key, parameter in model.named_parameters()}
    tensors |= {f"buffer/{key}": buffer for key, buffer in model.named_buffers()}
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "expected.safetensors")
    (folder / "case.json").write_text(
        json.dumps({"model": type_, "options": options, "shape": [3, height, width], "classes": CLASSES}))


def make_timm(folder):
    options = {**CASES["convnext"][1], "blocks": [1, 2, 1, 1], "channels": [16, 24, 32, 40]}  # timm's have four stages
    model = timm_convnext.ConvNeXt(depths=options["blocks"], dims=options["channels"], num_classes=CLASSES).eval()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor), alpha=0.1)
        inputs = torch.randn(2, 3, SIZE, SIZE)
        save_file({"inputs": inputs, "logits": model(inputs)}, folder / "expected.safetensors")
    save_file(model.state_dict(), folder / "model.safetensors")
    (folder / "case.json").write_text(
        json.dumps({"model": "convnext", "options": options, "shape": [3, SIZE, SIZE], "classes": CLASSES}))


def published(name):
    with torch.device("meta"):
        model = models.get_model(name)
    weights = models.get_model_weights(name).IMAGENET1K_V1
    dropouts = {key: module.p for key, module in model.named_modules()
                if isinstance(module, (torch.nn.Dropout, StochasticDepth)) and module.p > 0}
    return {"shapes": {key: list(value.shape) for key, value in model.state_dict().items()}, "dropouts": dropouts,
            "size": weights.transforms().crop_size[0], "billions": weights.meta["_ops"]}


def same_start(name, ours, theirs):
    """Whether two tensors of random values, or of one value, look like draws of one distribution."""
    if theirs.numel() > 1 and theirs.min() == theirs.max() or theirs.numel() == 1:
        same = torch.equal(ours, theirs)
    else:
        # The mean fourth power of a uniform distribution is 1.8 times its variance squared, of a normal one 3 times.
        fourths = [(tensor**4).mean() / tensor.var() ** 2 for tensor in (ours, theirs)]
        same = theirs.numel() < 4000 or (abs(ours.std() / theirs.std() - 1) < 0.1 and abs(fourths[0] - fourths[1]) < 0.6)
    if not same:
        print(f"{name}: other initial values, deviations {ours.std():.3g} and {theirs.std():.3g}")
    return same


def check(name, folder):
    model = CASES[name][2]()
    fresh = {key: value.clone() for key, value in model.state_dict().items()}
    ours = load_file(folder / "model.safetensors")
    model.load_state_dict(ours, strict=True)
    results = load_file(folder / "results.safetensors")
    with torch.no_grad():
        logits = model.eval()(results["inputs"])
    error = ((logits - results["logits"]).norm() / logits.norm()).item()
    print(f"{name}: relative error of the logits {error:.1e}")
    return all([same_start(f"{name}: {key}", ours[key], fresh[key]) for key in fresh]) and error <= 1e-5


def main():
    action, root = sys.argv[1], Path(sys.argv[2])
    torch.manual_seed(11)
    if action == "check":
        sys.exit(not all([check(name, root / name / "ours") for name in CASES]))
    for name in CASES:
        (root / name).mkdir()
        make(name, root / name)
    (root / "timm").mkdir()
    make_timm(root / "timm")
    (root / "published.json").write_text(json.dumps({name: published(name) for name in PUBLISHED}))


main()
