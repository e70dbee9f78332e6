// Adapters: what a job adds to any model before training, as few parameters beside frozen ones. One kind per file in
// src/models/adapters.
#pragma once

#include "gputrain/config/catalog.hpp"
#include "gputrain/models/model.hpp"

namespace gputrain::models {

class Adapter {
 public:
  virtual ~Adapter();

  /// Freezes parameters of the model and adds branches to its dense layers. Called once, before the arena is built.
  /// Throws Error(usage) if there is nothing to adapt. Pretrained weights may lack the branches' parameters.
  virtual void adapt(Model& model) const = 0;
};

using AdapterCatalog = config::Catalog<Adapter>;
AdapterCatalog& adapters();

}  // namespace gputrain::models
