// Shared by the tests of optim: reads sections from YAML, exchanges numbers with the Python reference.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "gputrain/config/load.hpp"
#include "gputrain/optim/optimizer.hpp"
#include "gputrain/optim/schedule.hpp"
#include "gputrain/optim/spec.hpp"
#include "support/python_reference.hpp"

namespace gputrain::optim {

template <class Spec>
Spec spec_of(const std::string& yaml) {
  return config::load(config::schema_of<Spec>(), {.file = "test.yaml", .text = yaml}).template as<Spec>();
}

inline std::unique_ptr<Optimizer> optimizer_of(const std::string& yaml, const device::Arena& arena) {
  return catalog().make(spec_of<OptimizerSpec>(yaml).type, arena);
}

/// A temporary folder with raw files of doubles.
class OptimTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write_doubles(const std::string& name, const std::vector<double>& values) const {
    std::ofstream file(folder_ / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(double)));
    return folder_ / name;
  }

  /// The numbers that the reference writes for these arguments; empty if it fails.
  std::vector<double> ask_reference(const std::string& kind, std::vector<std::string> arguments) const {
    const std::filesystem::path out = folder_ / "out";
    arguments.insert(arguments.begin(), {kind, out.string()});
    if (!gputrain::testing::run_reference("optim/optim_reference.py", arguments)) return {};
    std::vector<double> values(std::filesystem::file_size(out) / sizeof(double));
    std::ifstream file(out, std::ios::binary);
    file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(double)));
    return values;
  }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("gputrain_optim_" + std::to_string(::getpid()));
};

}  // namespace gputrain::optim
