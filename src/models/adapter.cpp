#include "gputrain/models/adapter.hpp"

namespace gputrain::models {

Adapter::~Adapter() = default;

AdapterCatalog& adapters() {
  static AdapterCatalog adapters("adapter");
  return adapters;
}

}  // namespace gputrain::models
