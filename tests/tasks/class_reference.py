"""Losses of torch, timm and torchvision, and scores of scikit-learn, as reference. Usage: class_reference.py DIR

Writes DIR/losses.json: for each case the options of our task, the logits, and the loss and its gradient with respect to
the logits; and DIR/scores.json: classes with probabilities, numbers, and their scores.
"""
import json
import sys
from pathlib import Path

import numpy as np
import sklearn.metrics as metrics
import torch
import torch.nn.functional as F
from timm.loss import BinaryCrossEntropy, SoftTargetCrossEntropy
from torchvision.ops import sigmoid_focal_loss

ROWS, CLASSES, PART = 6, 5, 0.3
WEIGHTS = [0.5, 2.0, 0.0, 1.0, 3.5]
TARGETS, OTHERS = [0, 4, 2, 1, 1, 3], [3, 1, 1, 2, 4, 0]  # as a loader mixes: the others in the opposite order


def soft(smoothing, mixed):
    hard = F.one_hot(torch.tensor(TARGETS), CLASSES).double()
    if mixed:
        hard = PART * hard + (1 - PART) * F.one_hot(torch.tensor(OTHERS), CLASSES).double()
    return hard * (1 - smoothing) + smoothing / CLASSES


def weight_of_rows(mixed):
    weights = torch.tensor(WEIGHTS, dtype=torch.double)
    rows = weights[TARGETS]
    return PART * rows + (1 - PART) * weights[OTHERS] if mixed else rows


# Our options, smoothing, whether mixed, and the loss of a whole batch as the library gives it.
def cases():
    targets, weights = torch.tensor(TARGETS), torch.tensor(WEIGHTS, dtype=torch.double)
    yield "weights", dict(class_weights=WEIGHTS), 0, False, lambda x: F.cross_entropy(x, targets, weight=weights)
    yield ("weights_smoothed", dict(class_weights=WEIGHTS), 0.1, False,
           lambda x: F.cross_entropy(x, targets, weight=weights, label_smoothing=0.1))
    yield ("weights_mixed", dict(class_weights=WEIGHTS), 0.1, True,  # torch divides soft targets by their number
           lambda x: F.cross_entropy(x, soft(0, True), weight=weights, label_smoothing=0.1, reduction="sum") /
           weights[TARGETS].sum())
    yield "mixed", {}, 0.1, True, lambda x: SoftTargetCrossEntropy()(x, soft(0.1, True))
    yield "bce", dict(loss="bce"), 0.1, False, lambda x: BinaryCrossEntropy(smoothing=0.1)(x, targets)
    yield "bce_mixed", dict(loss="bce"), 0.1, True, lambda x: BinaryCrossEntropy()(x, soft(0.1, True))
    yield ("bce_threshold", dict(loss="bce", target_threshold=0.2, sum_classes=True), 0.1, True,
           lambda x: BinaryCrossEntropy(target_threshold=0.2, sum_classes=True)(x, soft(0.1, True)))
    for mixed in (False, True):
        yield (f"bce_weights_{mixed}", dict(loss="bce", class_weights=WEIGHTS), 0, mixed,
               lambda x, mixed=mixed: (weight_of_rows(mixed) * F.binary_cross_entropy_with_logits(
                   x, soft(0, mixed), reduction="none").mean(1)).sum() / weight_of_rows(mixed).sum())
    yield "focal", dict(loss="focal"), 0, False, lambda x: sigmoid_focal_loss(x, soft(0, False), reduction="sum") / ROWS
    yield ("focal_gamma", dict(loss="focal", gamma=0.5, alpha=None), 0.1, True,
           lambda x: sigmoid_focal_loss(x, soft(0.1, True), alpha=-1, gamma=0.5, reduction="sum") / ROWS)
    yield ("focal_weights", dict(loss="focal", alpha=0.4, class_weights=WEIGHTS), 0, False,
           lambda x: (weight_of_rows(False)[:, None] * sigmoid_focal_loss(x, soft(0, False), alpha=0.4)).sum() /
           weight_of_rows(False).sum())


def losses(folder):
    told = []
    for name, options, smoothing, mixed, loss_of in cases():
        logits = (3 * torch.randn(ROWS, CLASSES, dtype=torch.double)).requires_grad_()
        loss = loss_of(logits)
        loss.backward()
        told.append(dict(name=name, options=options, smoothing=smoothing, mixed=mixed, loss=loss.item(),
                         logits=logits.tolist(), gradient=logits.grad.tolist()))
    (folder / "losses.json").write_text(json.dumps(dict(targets=TARGETS, others=OTHERS, part=PART, cases=told)))


def scores(folder):
    told = []
    random = np.random.default_rng(3)
    for classes in (2, 4):
        truth = random.integers(0, classes, 50)
        scores = np.round(random.random((50, classes)) + np.eye(classes)[truth], 1) + 0.1  # with equal ones
        probabilities = scores / scores.sum(1, keepdims=True)
        guesses = probabilities.argmax(1)
        how = dict(average="binary") if classes == 2 else dict(average="macro")
        told.append(dict(probabilities=probabilities.tolist(), truth=truth.tolist(), guesses=guesses.tolist(),
                         f1=metrics.f1_score(truth, guesses, **how), precision=metrics.precision_score(truth, guesses, **how),
                         recall=metrics.recall_score(truth, guesses, **how),
                         auc=metrics.roc_auc_score(truth, probabilities[:, 1] if classes == 2 else probabilities,
                                                   multi_class="ovr")))
    truth = random.normal(size=(30, 3)) * [1, 10, 0.1]
    guesses = truth + random.normal(size=(30, 3)) * [0.5, 20, 0.05]
    numbers = dict(truth=truth.tolist(), guesses=guesses.tolist(), mae=metrics.mean_absolute_error(truth, guesses),
                   rmse=metrics.root_mean_squared_error(truth, guesses), r2=metrics.r2_score(truth, guesses))
    (folder / "scores.json").write_text(json.dumps(dict(classes=told, numbers=numbers)))


if __name__ == "__main__":
    torch.manual_seed(1)
    losses(Path(sys.argv[1]))
    scores(Path(sys.argv[1]))
