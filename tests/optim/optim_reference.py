"""torch, timm, transformers and schedulefree as references for optim. Numbers are exchanged as raw files of float64.

optimizers OUT IN SHAPES CASES                         weights after 20 steps, case by case in double and in float
groups OUT IN SHAPES CASES                             the same with parameter groups and a falling rate
late OUT IN SHAPES ADDED AFTER CASES                   weights after 20 steps, some of them trained later, in double
schedules OUT CURVES                                   the rates of transformers' and torch's schedulers
timm OUT CASES                                           the rates of timm's schedulers
plateau OUT CASES                                      the rate of torch's ReduceLROnPlateau after each evaluation
scaler OUT INTERVAL INFINITE_STEPS                     scale and growth tracker of torch.amp.GradScaler after each step
"""
import json
import sys

import numpy
import torch

STEPS = 20


def write(path, values):
    numpy.asarray(values, dtype=numpy.float64).tofile(path)


def table(signed):
    """Values of dynamic tree quantization (Dettmers et al., ICLR 2022), in ascending order."""
    values = [0.0, 1.0]
    for decade in range(7):
        edges = numpy.linspace(0.1, 1, 2 ** (decade + (0 if signed else 1)) + 1)
        middles = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (decade - 6)
        values += [*middles, *(-middles if signed else [])]
    return torch.tensor(sorted(values), dtype=torch.get_default_dtype())


class BlockwiseAdamW(torch.optim.Optimizer):
    """AdamW that rounds its averages after each step to the nearest value of a table, in blocks of 256."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, min_8bit_size=4096):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.min_8bit_size = min_8bit_size

    def rounded(self, average, signed):
        if average.numel() < self.min_8bit_size:
            return average
        values, blocks = table(signed), []
        for block in average.reshape(-1).split(256):
            scale = block.abs().max()
            shares = block / scale if scale > 0 else block
            codes = (shares[:, None] - values[None, :]).abs().argmin(1)
            if not signed:
                codes[shares > 0] = codes[shares > 0].clamp(min=1)
            blocks.append(values[codes] * scale)
        return torch.cat(blocks).reshape(average.shape)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, (beta1, beta2) = group["lr"], group["betas"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                count, first, second = state.get("all", (0, torch.zeros_like(weight), torch.zeros_like(weight)))
                count += 1
                first = first + (weight.grad - first) * (1 - beta1)
                second = second * beta2 + weight.grad ** 2 * (1 - beta2)
                root = (second / (1 - beta2 ** count)).sqrt() + group["eps"]
                weight.mul_(1 - lr * group["weight_decay"])
                weight.sub_(lr * first / (1 - beta1 ** count) / root)
                state["all"] = count, self.rounded(first, True), self.rounded(second, False)


def make(rule, parts, options):
    """The optimizers for parameter groups; several for a rule that treats some parameters otherwise."""
    options = dict(options)
    if rule in ("lion", "lamb"):
        import timm.optim

        kind = {"lion": timm.optim.Lion, "lamb": timm.optim.Lamb}[rule]
        if rule == "lamb":
            options["max_grad_norm"] = None
        return [kind(parts, foreach=False, **options)]
    if rule == "muon":
        adamw, others = options.pop("adamw", []), options.pop("others", {})
        rate = {"lr": options["lr"]} if "lr" in options else {}
        ours, theirs = [], []
        for part in parts:
            for weight in part["params"]:
                is_hidden = weight.ndim == 2 and weight.shape not in [torch.Size(shape) for shape in adamw]
                (ours if is_hidden else theirs).append({**part, "params": [weight]})
        return [torch.optim.Muon(ours, **options)] * bool(ours) + [torch.optim.AdamW(theirs, **rate, **others)] * bool(theirs)
    if rule == "schedule_free_adamw":
        import schedulefree

        made = schedulefree.AdamWScheduleFree(parts, foreach=False, **options)
        made.train()
        return [made]
    kinds = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW, "adafactor": torch.optim.Adafactor,
             "adamw8bit": BlockwiseAdamW}
    return [kinds[rule](parts, **options)]


def end_with_average(optimizers):
    for optimizer in optimizers:
        if hasattr(optimizer, "eval"):
            optimizer.eval()


def optimizers(path, given_path, shapes, cases):
    """CASES is a list of [rule, options, max_norm]. IN holds the initial values, then the gradients of each step."""
    given = torch.from_numpy(numpy.fromfile(given_path))
    write(path, torch.cat([train(given.to(dtype), json.loads(shapes), rule, dict(options), max_norm)
                           for rule, options, max_norm in json.loads(cases)
                           for dtype in (torch.float64, torch.float32)]))


def train(given, shapes, rule, options, max_norm):
    """Every other parameter has weight decay."""
    torch.set_default_dtype(given.dtype)  # of NAdam's product of momenta
    sizes = [torch.Size(shape).numel() for shape in shapes]
    rows = [[part.reshape(shape).clone() for part, shape in zip(row.split(sizes), shapes)]
            for row in given.view(STEPS + 1, sum(sizes))]
    weights = [torch.nn.Parameter(start) for start in rows[0]]
    decay = options.pop("weight_decay", 0.0)
    groups = [{"params": weights[0::2], "weight_decay": decay}, {"params": weights[1::2], "weight_decay": 0.0}]
    parts = make(rule, groups, options)
    for gradients in rows[1:]:
        for weight, gradient in zip(weights, gradients):
            weight.grad = gradient
        if max_norm:
            torch.nn.utils.clip_grad_norm_(weights, max_norm)
        for optimizer in parts:
            optimizer.step()
    end_with_average(parts)
    return torch.cat([weight.detach().double().view(-1) for weight in weights])


def groups(path, given_path, shapes, cases):
    """CASES is a list of [rule, options, [rate, weight decay] of each parameter]."""
    given = torch.from_numpy(numpy.fromfile(given_path))
    write(path, torch.cat([train_groups(given.to(dtype), json.loads(shapes), rule, options, settings)
                           for rule, options, settings in json.loads(cases)
                           for dtype in (torch.float64, torch.float32)]))


def train_groups(given, shapes, rule, options, settings):
    torch.set_default_dtype(given.dtype)
    sizes = [torch.Size(shape).numel() for shape in shapes]
    rows = [[part.reshape(shape).clone() for part, shape in zip(row.split(sizes), shapes)]
            for row in given.view(STEPS + 1, sum(sizes))]
    weights = [torch.nn.Parameter(start) for start in rows[0]]
    parts = [{"params": [weight], "lr": rate, "weight_decay": decay}
             for weight, (rate, decay) in zip(weights, settings)]
    made = [(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 40))
            for optimizer in make(rule, parts, options)]
    for gradients in rows[1:]:
        for weight, gradient in zip(weights, gradients):
            weight.grad = gradient
        for optimizer, schedule in made:
            optimizer.step()
            schedule.step()
    end_with_average(optimizer for optimizer, _ in made)
    return torch.cat([weight.detach().double().view(-1) for weight in weights])


def late(path, given_path, shapes, added, after, cases):
    """CASES is a list of [rule, options]. Parameters ADDED are trained only after so many steps. Every other one decays."""
    given = torch.from_numpy(numpy.fromfile(given_path))
    write(path, torch.cat([train_late(given, json.loads(shapes), json.loads(added), int(after), rule, options)
                           for rule, options in json.loads(cases)]))


def train_late(given, shapes, added, after, rule, options):
    torch.set_default_dtype(given.dtype)
    sizes = [torch.Size(shape).numel() for shape in shapes]
    rows = [[part.reshape(shape).clone() for part, shape in zip(row.split(sizes), shapes)]
            for row in given.view(STEPS + 1, sum(sizes))]
    weights = [torch.nn.Parameter(start) for start in rows[0]]
    part = lambda i: {"params": [weights[i]], "weight_decay": 0.1 if i % 2 == 0 else 0.0}
    made = make(rule, [part(i) for i in range(len(weights)) if i not in added], options)
    for step, gradients in enumerate(rows[1:]):
        if step == after:
            made += make(rule, [part(i) for i in added], options)
        for weight, gradient in zip(weights, gradients):
            weight.grad = gradient
        for optimizer in made:
            optimizer.step()
    end_with_average(made)
    return torch.cat([weight.detach().double().view(-1) for weight in weights])


def rates(make, steps):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    scheduler = make(optimizer)
    result = []
    for _ in range(steps):
        result.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return result


def schedules(path, curves):
    """CURVES is a list of [name, warmup, total, options]; each yields `total` learning rates with a peak of 0.3."""
    import transformers

    result = []
    for name, warmup, total, options in json.loads(curves):
        make = {
            "constant": lambda o: transformers.get_constant_schedule_with_warmup(o, warmup),
            "linear": lambda o: transformers.get_linear_schedule_with_warmup(o, warmup, total),
            "cosine": lambda o: transformers.get_cosine_with_min_lr_schedule_with_warmup(
                o, warmup, total, **{"min_lr": 0, **options}),
            "wsd": lambda o: transformers.get_wsd_schedule(o, warmup, num_training_steps=total, **options),
            "polynomial": lambda o: transformers.get_polynomial_decay_schedule_with_warmup(o, warmup, total, **options),
            "inverse_sqrt": lambda o: transformers.get_inverse_sqrt_schedule(o, warmup, **options),
            "hard_restarts": lambda o: transformers.get_cosine_with_hard_restarts_schedule_with_warmup(
                o, warmup, total, **options),
            "warm_restarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, **options),
            "onecycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(
                o, max_lr=0.3, total_steps=total, cycle_momentum=False, **options),
            "multistep": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, **options),
            "exponential": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, **options),
            "step": lambda o: torch.optim.lr_scheduler.StepLR(o, **options),
        }[name]
        result += rates(make, total)
    write(path, result)


def timm(path, cases):
    """CASES is a list of options of create_scheduler_v2, for epochs of 100 updates and a peak of 0.3; each yields its
    number of updates and their rates. A run that is resumed in the middle takes those of the second half."""
    from timm.scheduler import create_scheduler_v2

    def start(options):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
        return optimizer, *create_scheduler_v2(optimizer, updates_per_epoch=100, **options)

    result = []
    for options in json.loads(cases):
        optimizer, scheduler, epochs = start(options)
        result.append(epochs * 100)
        for epoch in range(epochs):
            if epoch == epochs // 2:
                optimizer, scheduler, _ = start(options)
                scheduler.step(epoch)
                scheduler.step_update(epoch * 100)
            for update in range(epoch * 100, epoch * 100 + 100):
                result.append(optimizer.param_groups[0]["lr"])
                scheduler.step_update(update + 1)
            scheduler.step(epoch + 1)
    write(path, result)


def plateau(path, cases):
    """CASES is a list of [options, values of evaluations]; the rate begins at 0.3."""
    result = []
    for options, values in json.loads(cases):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        for value in values:
            scheduler.step(float(value))
            result.append(optimizer.param_groups[0]["lr"])
    write(path, result)


def scaler(path, interval, infinite_steps):
    infinite = set(json.loads(infinite_steps))
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    grad_scaler = torch.amp.GradScaler("cpu", growth_interval=int(interval))
    result = []
    for step in range(60):
        optimizer.zero_grad()
        grad_scaler.scale((weight * (torch.inf if step in infinite else 1.0)).sum()).backward()
        grad_scaler.step(optimizer)
        grad_scaler.update()
        result += [grad_scaler.get_scale(), grad_scaler.state_dict()["_growth_tracker"]]
    write(path, result)


KINDS = {"optimizers": optimizers, "groups": groups, "late": late, "schedules": schedules, "timm": timm, "plateau": plateau,
         "scaler": scaler}
KINDS[sys.argv[1]](*sys.argv[2:])
