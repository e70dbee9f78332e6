// An average of the weights over the training, for evaluations and for what the run writes at its end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/optim/optimizer.hpp"

namespace gputrain::optim {

/// The share of the new weights in the average after an update.
struct AverageRule {
  enum class Kind { exponential, equal };
  Kind kind = Kind::exponential;
  /// exponential: what is kept of the average at each step, at most (1 + step) / (10 + step) if it warms up.
  double decay = 0.999;
  bool warms_up = true;
  /// equal: the weights at place `start` of the training and at every `interval` from there count alike: points. Before
  /// the first one the average is the weights themselves.
  double start = 0, interval = 1;

  /// The place of an update: the updates before it, and the places in training before and after it, see train::Plan.
  struct At {
    int64_t step = 0;
    double before = 0, after = 0;
  };
  /// Returns the share of the new weights. 1: the average becomes the new weights; 0: it stays. `points`: number of
  /// points so far; this function counts this one.
  double weight_at(const At& at, int64_t& points) const noexcept;
  std::string describe() const;  // "ema 0.999"
};

/// Updates like another optimizer, then takes the new weights into the average. The average is a part of its state, so
/// checkpoints have it, and ranks that share out the state have a share of it each. Running statistics are averaged
/// too, on each rank alone.
class WeightAverage final : public Optimizer {
 public:
  using Buffers = std::vector<std::pair<std::string, at::Tensor>>;

  /// The average begins at the arena's values, if they have memory. The arena must outlive it.
  WeightAverage(std::unique_ptr<Optimizer> inner, const device::Arena& arena, Buffers buffers, std::string description);

  void step(const StepScalars& scalars) override;
  State state() override;
  void count_since(const std::map<std::string, double>& since) override { inner_->count_since(since); }
  double updates() const override { return inner_->updates(); }
  int64_t bytes_on_host() const override { return inner_->bytes_on_host(); }
  void begin_anew(const std::string& tensor) override;
  std::string describe() const override { return inner_->describe() + "  " + description_; }

  bool has_average() const override { return true; }
  /// Exchanges the running statistics as well.
  void exchange_average() override;

  /// In a checkpoint's state: "average.<parameter>", "average.buffer.<buffer>".
  static constexpr const char* kName = "average";
  static std::string buffer_name(const std::string& buffer) { return std::string(kName) + ".buffer." + buffer; }

 private:
  /// A piece that the rank owns: of the values and of the average.
  struct Piece {
    at::Tensor values, average;
    at::Tensor trained = {};  // values that train, while narrow values are those of the average
  };

  void exchange_narrow_values();

  std::unique_ptr<Optimizer> inner_;
  const device::Arena& arena_;
  at::Tensor average_;
  std::vector<Piece> pieces_;
  Buffers buffers_, buffer_averages_;
  std::string description_;
};

}  // namespace gputrain::optim
