// Sharded parameters: a rank keeps the values, gradients and optimizer state of its shard only (ZeRO stage 3:
// Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", SC 2020; FSDP: Zhao et
// al., VLDB 2023).
//
// If the ranks are several replicas (HSDP), all of this happens within each of them.
//
// A unit's values are gathered from all shards before its forward pass, in the type in which its layers read them, and
// once more in the backward pass. Their memory is taken away when the next unit begins, or when the unit's gradients
// are complete. While a unit computes, the next one is gathered already, so that two have memory at a time; with a tied
// head, also the unit that it borrows from.
//
// Gathering is collective: every rank must run the same forward and backward passes in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/nn/unit_memory.hpp"

namespace gputrain::parallel {

class ShardedParameters final : public nn::UnitMemory {
 public:
  /// `arena` keeps owned values only. All arguments must outlive this, which is the process's nn::unit_memory() until
  /// it is destroyed.
  ShardedParameters(comm::ProcessGroups& groups, const device::Arena& arena, models::Model& model);
  ~ShardedParameters() override;
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;

  void enter(const nn::Module& module) override;
  void borrow(const nn::Module& module) override;
  int64_t current() const override { return current_; }
  int64_t unit_of(const c10::StorageImpl* storage) const override;
  void need(int64_t unit) override;

  /// Call when all gradients of a part of the arena have been computed.
  void complete(size_t part);
  /// Takes the memory of all units. Call after an update, which makes gathered values old.
  void release_all();

  int64_t units() const noexcept { return std::ssize(units_); }
  /// Gathers a unit's values in the arena's type, then calls `use`, during which its parameters can be read. Every rank
  /// must call.
  void with_unit(int64_t unit, const std::function<void()>& use);
  /// Gives one unit after the other memory, and calls `fill_values` each time, which sets the parameters that have
  /// memory. Each rank then keeps its shard. Sends nothing: every rank must set the same values.
  void fill(const std::function<void()>& fill_values);

 private:
  struct Unit {
    std::vector<size_t> parts;
    std::vector<comm::Pending> coming;
    bool has_memory = false;
    size_t incomplete = 0;  // parts whose gradients are not complete, since the unit was gathered in a backward pass
  };

  int64_t unit_of(const nn::Module& module) const;
  bool is_borrowed(int64_t unit) const;
  comm::Pending gather(size_t part, const at::Tensor& whole);
  void start(int64_t unit);
  void make_ready(int64_t unit);
  void release(int64_t unit);
  template <class Keep>
  void release_unless(const Keep& keep);
  at::Tensor own_piece(size_t part) const;
  at::Tensor own_part_of(const at::Tensor& whole) const;

  comm::Group& group_;
  bool is_simulated_;
  const device::Arena& arena_;
  nn::UnitMemory* before_this_;
  std::vector<Unit> units_;
  std::unordered_map<const nn::Module*, int64_t> unit_of_module_;
  std::unordered_map<const c10::StorageImpl*, int64_t> unit_of_storage_;
  int64_t current_ = -1;               // entered last
  std::vector<int64_t> borrowed_;      // by the current one
  int64_t needed_ = -1, before_ = -1;  // by the backward pass: last, and before that
};

}  // namespace gputrain::parallel
