// Activations of a job that is not running: measured on this machine's CPU where that is quick, else scaled.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/estimate/plan_candidate.hpp"
#include "gputrain/estimate/rank_layout.hpp"
#include "gputrain/estimate/scaled_activations.hpp"

namespace gputrain::app {

class PredictedActivations {
 public:
  /// `context`: a simulated rank, whose world the candidates have. All must outlive this.
  PredictedActivations(const Job& job, const JobDatasets& datasets, const RankContext& context);

  /// Which ways to share samples candidates have: degrees above 1. Call before bytes().
  void expect(const SampleRanks& ranks);

  /// Bytes beside what is fixed at the peak of a step; `layout` is that of a stage of the candidate.
  int64_t bytes(const PlanCandidate& candidate, const RankLayout& layout);

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
  Curve measured(const PlanCandidate& candidate) const;
  const Curve& curve_of(const PlanCandidate& candidate);
  const BlockActivations& scaled(const std::string& checkpointing);
  int64_t scaled_bytes(const PlanCandidate& candidate, const RankLayout& layout);

  const Job& job_;
  const JobDatasets& datasets_;
  const RankContext& context_;
  SampleRanks expected_;
  int64_t hidden_ = 0;  // bytes of what a block gives, of a sample
  Way way_ = Way::each;
  std::map<std::string, Curve> measured_;           // by what the variants differ in
  std::map<std::string, BlockActivations> scaled_;  // by checkpointing
};

}  // namespace gputrain::app
