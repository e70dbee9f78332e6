// Loss of classifiers and language models; the gradient overwrites the logits.
#pragma once

#include "kernels.hpp"

namespace gputrain::ops::cuda {

/// loss = (1 - smoothing) (lse - x[target]) + smoothing (lse - mean(x)) over the first `classes` columns, where lse is
/// the logarithm of the sum of exponentials. The gradient is (softmax - smoothed target) weight.
struct CrossEntropyRows {
  Element element;
  int64_t rows, columns, classes;  // columns >= classes; the rest is ignored
  int64_t ignored;                 // target of rows to skip: their loss and gradient are 0
  float smoothing;
  void* logits;            // [rows, columns]
  const int64_t* targets;  // [rows]: `ignored` or in [0, classes), else loss and gradient are NaN
  float* loss;             // [rows]
  const double* weight;    // [1], on the device; nullptr: the logits do not change
  /// [rows], to give each row a weight of its own: a first call, without weight, writes lse. A second call, whose
  /// weight is [rows], reads it and writes no loss.
  float* lse = nullptr;
};

/// Writes the losses and overwrites the logits with their gradient. Reads the logits from memory once.
void cross_entropy(const CrossEntropyRows& p, Stream stream);
/// Multiplies the gradient in `logits` by `weight`; reads none of it if `weight` is 1.
void scale_logits(const CrossEntropyRows& p, Stream stream);

}  // namespace gputrain::ops::cuda
