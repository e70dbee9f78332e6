// Makes one rank slow in one phase of its steps, for a test: loaded before the program's own libraries.
//
// SLOW_RANK: which rank; SLOW_PHASE: load, forward, backward or optimizer; SLOW_SECONDS: how long, once in each step.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include <ATen/record_function.h>

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The operator, or the range of the training loop, that stands for the phase: it runs once in a step of the test's
/// model.
const char* operator_of(const std::string& phase) {
  if (phase == "load") return "wait for data";
  if (phase == "forward") return "aten::embedding";
  return phase == "backward" ? "aten::embedding_dense_backward" : "aten::linalg_vector_norm";
}

struct Slowness {
  Slowness() {
    if (variable("RANK") != variable("SLOW_RANK") || variable("SLOW_PHASE").empty()) return;
    seconds = std::strtod(variable("SLOW_SECONDS").c_str(), nullptr);
    name = operator_of(variable("SLOW_PHASE"));
    at::addGlobalCallback(
        at::RecordFunctionCallback(&enter).scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE}));
  }
  static std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
    if (std::strcmp(function.name(), name) == 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    return nullptr;
  }
  static inline double seconds = 0;
  static inline const char* name = "";
};
const Slowness slowness;

}  // namespace
