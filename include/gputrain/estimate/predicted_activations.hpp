// Activations of a job that is not running: measured on this machine's CPU where that is quick, else scaled.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/estimate/rank_layout.hpp"
#include "gputrain/estimate/scaled_activations.hpp"

namespace gputrain::app {

class PredictedActivations {
 public:
  /// `context`: a simulated rank, whose world the jobs have; `share`: its samples in a step. All must outlive this.
  PredictedActivations(const Job& job, const JobDatasets& datasets, const RankContext& context, int64_t share);

  /// Bytes beside what is fixed at the peak of a step of `variant`, the job with other values of `parallel` and
  /// train.activation_checkpointing; `layout` is its layout.
  int64_t bytes(const Job& variant, const RankLayout& layout, int64_t samples);

  /// "measured here", or "scaled from decoders of 1/16 of the channels".
  std::string text() const;

 private:
  enum class Way {
    each,   // steps of each variant, as a dry run takes them
    one,    // steps of one rank alone for each kind of checkpointing; what ranks share is added
    scaled  // the same with smaller models
  };
  /// Peaks by numbers of samples, ascending.
  using Curve = std::vector<std::pair<int64_t, int64_t>>;
  Curve measured(const Job& variant) const;
  const Curve& curve_of(const Job& variant);
  const BlockActivations& scaled(const std::string& checkpointing);

  const Job& job_;
  const JobDatasets& datasets_;
  const RankContext& context_;
  int64_t share_;
  Way way_ = Way::each;
  std::map<std::string, Curve> measured_;           // by what the variants differ in
  std::map<std::string, BlockActivations> scaled_;  // by checkpointing
};

}  // namespace gputrain::app
