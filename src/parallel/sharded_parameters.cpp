#include "gputrain/parallel/sharded_parameters.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>

#include "gputrain/core/error.hpp"

namespace gputrain::parallel {

ShardedParameters::ShardedParameters(comm::ProcessGroups& groups, const device::Arena& arena, models::Model& model)
    : group_(groups.shards()), is_simulated_(groups.is_simulated()), arena_(arena), model_(model) {
  const auto units = model.units();
  units_.resize(units.size());
  for (size_t i = 0; i < units.size(); ++i) {
    for (const nn::Module* module : units[i].modules) unit_of_module_[module] = static_cast<int64_t>(i);
  }
  for (size_t i = 0; i < arena.gathered_parts().size(); ++i) {
    const device::GatheredPart& part = arena.gathered_parts()[i];
    units_[static_cast<size_t>(part.unit)].parts.push_back(i);
    for (const at::Tensor& tensor : {part.values, part.copy}) {
      if (tensor.defined()) unit_of_storage_[tensor.storage().unsafeGetStorageImpl()] = part.unit;
    }
  }
  for (size_t i = 0; i < arena.frozen_parts().size(); ++i) {
    const device::FrozenPart& part = arena.frozen_parts()[i];
    units_[static_cast<size_t>(part.unit)].frozen_parts.push_back(i);
    unit_of_storage_[part.values.storage().unsafeGetStorageImpl()] = part.unit;
  }
  while (units_[static_cast<size_t>(first_trained_)].parts.empty()) ++first_trained_;
  serve(this);
}

/// Makes `memory` that of the model's weights.
void ShardedParameters::serve(nn::UnitMemory* memory) {
  model_.set_unit_memory(memory);
  for (const models::Unit& unit : model_.units())
    for (nn::Module* module : unit.modules) module->set_unit_memory(memory);
}

ShardedParameters::~ShardedParameters() {
  serve(nullptr);
  try {
    release_all();
  } catch (const std::exception&) {
    // A rank is lost, which has been told already.
  }
}

int64_t ShardedParameters::unit_of(const nn::Module& module) const {
  const auto found = unit_of_module_.find(&module);
  GPUTRAIN_ASSERT(found != unit_of_module_.end(), "a module of one of the model's units");
  return found->second;
}

int64_t ShardedParameters::unit_of(const c10::StorageImpl* storage) const {
  const auto found = unit_of_storage_.find(storage);
  return found == unit_of_storage_.end() ? -1 : found->second;
}

/// Returns this rank's values of a part.
at::Tensor ShardedParameters::own_piece(size_t part) const {
  const device::Range& range = arena_.gathered_parts()[part].range;
  const auto piece = std::ranges::find_if(arena_.owned(), [&](const device::Piece& one) {
    return range.begin <= one.range.begin && one.range.begin < range.end;
  });
  return arena_.owned_values().narrow(0, piece->at, piece->range.size());
}

at::Tensor ShardedParameters::own_part_of(const at::Tensor& whole) const {
  const int64_t share = whole.numel() / group_.size();
  return whole.narrow(0, group_.rank() * share, share);
}

/// Returns the parts of a unit, of trained values with those in the arena's type.
std::vector<ShardedParameters::Piece> ShardedParameters::pieces(int64_t index, Values which) const {
  const Unit& unit = units_[static_cast<size_t>(index)];
  std::vector<Piece> pieces;
  if (which != Values::frozen) {
    for (const size_t part : unit.parts)
      pieces.push_back({.whole = arena_.gathered_parts()[part].values, .own = own_piece(part)});
  }
  if (which != Values::trained) {
    for (const size_t part : unit.frozen_parts)
      pieces.push_back({.whole = arena_.frozen_parts()[part].values, .own = arena_.frozen_parts()[part].own});
  }
  return pieces;
}

/// Gives `piece.whole` memory and starts to gather its values in it.
comm::Pending ShardedParameters::gather(int64_t unit, const Piece& piece) {
  device::give_memory(piece.whole);
  if (is_simulated_) at::Tensor(piece.whole).zero_();  // the others' share
  const at::Tensor own = own_part_of(piece.whole);
  own.copy_(piece.own);
  return group_.all_gather_into(piece.whole, own, "values of unit " + std::to_string(unit));
}

void ShardedParameters::start(int64_t index) {
  Unit& unit = units_[static_cast<size_t>(index)];
  if (unit.has_memory) return;
  const at::NoGradGuard no_grad;
  unit.has_memory = true;
  unit.incomplete = unit.parts.size();
  for (const size_t part : unit.parts)
    unit.coming.push_back(gather(index, {.whole = arena_.gathered_parts()[part].read(), .own = own_piece(part)}));
  for (const Piece& piece : pieces(index, Values::frozen)) unit.coming.push_back(gather(index, piece));
}

void ShardedParameters::make_ready(int64_t index) {
  start(index);
  for (comm::Pending& pending : std::exchange(units_[static_cast<size_t>(index)].coming, {})) pending.wait();
}

void ShardedParameters::release(int64_t index) {
  Unit& unit = units_[static_cast<size_t>(index)];
  if (!unit.has_memory) return;
  for (comm::Pending& pending : std::exchange(unit.coming, {})) pending.wait();
  for (const size_t part : unit.parts) device::take_memory(arena_.gathered_parts()[part].read());
  for (const size_t part : unit.frozen_parts) device::take_memory(arena_.frozen_parts()[part].values);
  unit.has_memory = false;
}

template <class Keep>
void ShardedParameters::release_unless(const Keep& keep) {
  for (int64_t index = 0; index < units(); ++index) {
    if (!keep(index)) release(index);
  }
}

void ShardedParameters::enter(const nn::Module& module) {
  const int64_t unit = unit_of(module);
  if (unit == current_ && units_[static_cast<size_t>(unit)].has_memory) return make_ready(unit);
  current_ = unit;
  needed_ = before_ = -1;
  borrowed_.clear();
  release_unless([&](int64_t one) { return one == unit; });
  make_ready(unit);
  if (unit + 1 < units()) start(unit + 1);
}

void ShardedParameters::borrow(const nn::Module& module) {
  const int64_t unit = unit_of(module);
  if (unit == current_) return;
  make_ready(unit);
  if (!is_borrowed(unit)) borrowed_.push_back(unit);
}

void ShardedParameters::need(int64_t unit) {
  // A head may be computed in parts, forward and backward in turn, and each rank may have another number of them: what
  // the first part has gathered stays for all.
  if (unit != current_ && !is_borrowed(unit)) {
    current_ = -1;
    borrowed_.clear();
  }
  const int64_t next = (current_ >= 0 ? current_ : unit) - 1;
  const void* const reader = torch::autograd::get_current_node().get();
  if (unit != needed_) {
    before_ = std::exchange(needed_, unit);
    reader_ = reader;
    // An operator may read weights of the unit before as well. Others were complete when this one began.
    release_unless([&](int64_t one) {
      return one == unit || one == before_ || one == next || one == current_ || is_borrowed(one);
    });
  } else if (reader != reader_ && before_is_left()) {
    release(before_);
  }
  make_ready(unit);
  if (next >= first_trained_ && !before_is_left()) start(next);
}

/// Returns whether the unit before the needed one has memory only because one operator may read weights of both.
bool ShardedParameters::before_is_left() const {
  if (before_ < 0 || before_ == needed_ - 1 || before_ == current_ || is_borrowed(before_)) return false;
  const Unit& unit = units_[static_cast<size_t>(before_)];
  return unit.has_memory && !unit.frozen_parts.empty();
}

bool ShardedParameters::is_borrowed(int64_t unit) const {
  return std::ranges::find(borrowed_, unit) != borrowed_.end();
}

void ShardedParameters::complete(size_t part) {
  const int64_t index = arena_.gathered_parts()[part].unit;
  Unit& unit = units_[static_cast<size_t>(index)];
  if (unit.incomplete > 0) --unit.incomplete;
  if (unit.incomplete == 0 && unit.frozen_parts.empty()) release(index);
}

void ShardedParameters::release_all() {
  release_unless([](int64_t) { return false; });
  current_ = needed_ = before_ = -1;
  borrowed_.clear();
}

void ShardedParameters::with_unit(int64_t index, const std::function<void()>& use, Values which) {
  release_all();
  const at::NoGradGuard no_grad;
  const auto of_unit = pieces(index, which);
  for (const Piece& piece : of_unit) gather(index, piece).wait();
  use();
  for (const Piece& piece : of_unit) device::take_memory(piece.whole);
}

void ShardedParameters::fill(const std::function<void()>& fill_values, Values which) {
  set_units(
      [](int64_t, const Piece& piece) {
        device::give_memory(piece.whole);
        at::Tensor(piece.whole).zero_();  // padding is zero
      },
      fill_values, which);
}

void ShardedParameters::change(const std::function<void()>& change_values, Values which) {
  set_units([this](int64_t unit, const Piece& piece) { gather(unit, piece).wait(); }, change_values, which);
}

/// Calls `set_values` for each unit, for whose pieces `begin` has made memory, and keeps this rank's shard.
template <class Begin>
void ShardedParameters::set_units(const Begin& begin, const std::function<void()>& set_values, Values which) {
  release_all();
  const at::NoGradGuard no_grad;
  for (int64_t unit = 0; unit < units(); ++unit) {
    const auto of_unit = pieces(unit, which);
    for (const Piece& piece : of_unit) begin(unit, piece);
    set_values();
    for (const Piece& piece : of_unit) {
      at::Tensor(piece.own).copy_(own_part_of(piece.whole));
      device::take_memory(piece.whole);
    }
  }
}

}  // namespace gputrain::parallel
