// Activations of a job that is not running: measured on this machine's CPU if that is quick, else scaled.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/estimate/plan_candidate.hpp"
#include "gputrain/estimate/rank_layout.hpp"
#include "gputrain/estimate/scaled_activations.hpp"

namespace gputrain::app {

class PredictedActivations {
 public:
  /// Keeps the references. `context`: a simulated rank, whose world the candidates have.
  PredictedActivations(const Job& job, const JobDatasets& datasets, const RankContext& context);

  /// Announces how candidates share samples: degrees above 1. Call it before bytes().
  void expect(const SampleRanks& ranks);

  /// Returns the bytes beyond fixed memory at the peak of a step. `layout`: that of a stage of the candidate.
  int64_t bytes(const PlanCandidate& candidate, const RankLayout& layout);

  /// Returns the bytes of activations that wait in the host's memory.
  int64_t bytes_on_host(const PlanCandidate& candidate, const RankLayout& layout);

  /// Describes the method: "measured here, ...", or "scaled from decoders of 2 blocks with 1/16 of the channels, ...".
  std::string text() const;

 private:
  enum class Way {
    each,   // steps of each variant, as in a dry run
    one,    // steps of one rank alone for each kind of checkpointing; shared parts are added
    scaled  // same with smaller models
  };
  /// Peaks by numbers of samples, ascending.
  using Curve = std::vector<std::pair<int64_t, int64_t>>;
  struct Curves {
    Curve on_device, on_host;
  };
  Curves measured(const PlanCandidate& candidate) const;
  const Curves& curves_of(const PlanCandidate& candidate);
  bool is_scaled(const PlanCandidate& candidate) const;
  bool offloads(const PlanCandidate& candidate) const;
  const BlockActivations& scaled(const std::string& checkpointing);
  int64_t scaled_bytes(const PlanCandidate& candidate, const RankLayout& layout);

  const Job& job_;
  const JobDatasets& datasets_;
  const RankContext& context_;
  SampleRanks expected_;
  int64_t hidden_ = 0;  // bytes of a block's output, per sample
  Way way_ = Way::each;
  std::map<std::string, Curves> measured_;          // key: differences of the variants
  std::map<std::string, BlockActivations> scaled_;  // key: checkpointing
  std::optional<MatrixBytes> matrices_;             // the same for all of them
};

}  // namespace gputrain::app
