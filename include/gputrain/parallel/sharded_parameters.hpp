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
// Frozen values are shared out and gathered likewise. The backward pass reads them after the unit's last gradient is
// there, so a unit that has some keeps its memory until the backward pass is in the unit before it. A unit before which
// nothing is trained is not read again, and so not gathered ahead.
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

/// A choice of a unit's values.
enum class Values { all, trained, frozen };

class ShardedParameters final : public nn::UnitMemory {
 public:
  /// `arena` keeps owned values only. All arguments must outlive this, which is the memory of the model's units.
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
  /// Gathers a unit's values, trained ones in the arena's type, then calls `use`, during which its parameters can be
  /// read, and written for as long as that. Every rank must call.
  void with_unit(int64_t unit, const std::function<void()>& use, Values which = Values::all);
  /// Gives one unit after the other memory, and calls `fill_values` each time, which sets the parameters that have
  /// memory. Each rank then keeps its shard. Sends nothing: every rank must set the same values.
  void fill(const std::function<void()>& fill_values, Values which = Values::all);
  /// Gathers one unit after the other, and calls `change_values` each time, likewise. Every rank must call.
  void change(const std::function<void()>& change_values, Values which);

 private:
  struct Unit {
    std::vector<size_t> parts;         // indices of the arena's gathered parts
    std::vector<size_t> frozen_parts;  // indices of the arena's frozen parts
    std::vector<comm::Pending> coming;
    bool has_memory = false;
    size_t incomplete = 0;  // parts whose gradients are not complete, since the unit was gathered in a backward pass
  };

  /// A part of a unit: its values, and this rank's share of them.
  struct Piece {
    at::Tensor whole, own;
  };

  void serve(nn::UnitMemory* memory);
  int64_t unit_of(const nn::Module& module) const;
  bool is_borrowed(int64_t unit) const;
  template <class Begin>
  void set_units(const Begin& begin, const std::function<void()>& set_values, Values which);
  std::vector<Piece> pieces(int64_t unit, Values which) const;
  comm::Pending gather(int64_t unit, const Piece& piece);
  void start(int64_t unit);
  void make_ready(int64_t unit);
  void release(int64_t unit);
  template <class Keep>
  void release_unless(const Keep& keep);
  bool before_is_left() const;
  at::Tensor own_piece(size_t part) const;
  at::Tensor own_part_of(const at::Tensor& whole) const;

  comm::Group& group_;
  bool is_simulated_;
  const device::Arena& arena_;
  models::Model& model_;
  std::vector<Unit> units_;
  std::unordered_map<const nn::Module*, int64_t> unit_of_module_;
  std::unordered_map<const c10::StorageImpl*, int64_t> unit_of_storage_;
  int64_t current_ = -1;               // the unit entered last
  std::vector<int64_t> borrowed_;      // units whose weights the current one borrows
  int64_t needed_ = -1, before_ = -1;  // units that the backward pass needed last, and before that
  const void* reader_ = nullptr;       // the operator of the backward pass that first needed the last
  int64_t first_trained_ = 0;          // unit: the backward pass ends there
};

}  // namespace gputrain::parallel
