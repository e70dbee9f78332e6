// The loss of classifiers and language models; the gradient overwrites the logits.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

/// loss = (1 - smoothing) (lse - x[target]) + smoothing (lse - mean(x)) over the first `classes` columns, with lse the
/// logarithm of the sum of exponentials; the gradient is (softmax - smoothed target) scale.
struct CrossEntropyRows {
  Element element;
  int64_t rows, columns, classes;  // columns >= classes: the others take no part
  int64_t ignored;                 // the target of rows that are left out: loss and gradient are 0
  float smoothing;
  void* logits;            // [rows, columns]
  const int64_t* targets;  // [rows]: each `ignored` or of [0, classes), else the kernel traps
  float* loss;             // [rows]
  float* lse;              // [rows]
  const double* scale;     // [1], on the device
};

/// Writes loss and lse.
void cross_entropy_forward(const CrossEntropyRows& p, Stream stream);
/// Reads lse, overwrites the logits.
void cross_entropy_backward(const CrossEntropyRows& p, Stream stream);
/// Both in one go, for a scale that is known before: the logits are read from memory once.
void cross_entropy_in_place(const CrossEntropyRows& p, Stream stream);

}  // namespace gputrain::ops::cuda
