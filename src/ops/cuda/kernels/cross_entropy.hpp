// The loss of classifiers and language models; the gradient overwrites the logits.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

/// loss = (1 - smoothing) (lse - x[target]) + smoothing (lse - mean(x)) over the first `classes` columns, with lse the
/// logarithm of the sum of exponentials; the gradient is (softmax - smoothed target) weight.
struct CrossEntropyRows {
  Element element;
  int64_t rows, columns, classes;  // columns >= classes: the others take no part
  int64_t ignored;                 // the target of rows that are left out: loss and gradient are 0
  float smoothing;
  void* logits;            // [rows, columns]
  const int64_t* targets;  // [rows]: each `ignored` or of [0, classes), else the kernel traps
  float* loss;             // [rows]
  const double* weight;    // [1], on the device; null: the logits stay as they are
};

/// Writes the losses and, over the logits, their gradient: logits are read from memory once.
void cross_entropy(const CrossEntropyRows& p, Stream stream);
/// Multiplies the gradient in `logits` by `weight`; reads nothing of it where that is 1.
void scale_logits(const CrossEntropyRows& p, Stream stream);

}  // namespace gputrain::ops::cuda
