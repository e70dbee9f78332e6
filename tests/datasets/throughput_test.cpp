// Prints reading speeds for people; asserts nothing about speed.
#include <time.h>

#include <chrono>
#include <iostream>

#include <gtest/gtest.h>

#include "datasets/opened.hpp"
#include "gputrain/data/loader.hpp"
#include "gputrain/data/preprocess.hpp"

namespace gputrain::datasets {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Reads for a short time with each number of workers. Measures CPU time, because other load does not distort it.
void print_rates(const std::string& what, const std::string& section, int64_t batch, int64_t sequence = 0) {
  const auto opening = std::chrono::steady_clock::now();
  const data::DatasetSplits datasets = open(section, sequence);
  std::cout << what << ": opened in " << seconds_since(opening) * 1000 << " ms;";
  for (const int workers : {0, 1, 2}) {
    data::LoaderOptions options;
    options.partition = {.global_batch = batch, .micro_batch = batch};
    options.num_workers = workers;
    data::Loader loader(datasets.train, options);
    const data::Preprocess preprocess(*datasets.train, {});
    const auto begin = std::chrono::steady_clock::now();
    const double cpu_begin = cpu_seconds();
    int64_t samples = 0;
    for (int64_t step = 0; step == 0 || seconds_since(begin) < 0.3; ++step) {
      const data::StepData data = loader.next_step();
      samples += data.samples;
      EXPECT_EQ(preprocess(data.micro_batches[0]).input().size(0), batch);
    }
    const double rate = static_cast<double>(samples) / seconds_since(begin);
    const double cost = (cpu_seconds() - cpu_begin) / static_cast<double>(samples) * 1e6;
    std::cout << "  " << workers << " workers " << static_cast<int64_t>(rate) << "/s " << cost << " us CPU each;";
  }
  std::cout << std::endl;
}

TEST(Throughput, PrintsRatesOfSyntheticData) {
  print_rates("synthetic 224x224", "{train: {format: synthetic, samples: 100000}, image: {size: 224}}", 64);
  print_rates("synthetic 224x224 noise",
              "{train: {format: synthetic, samples: 100000, learnable: false}, image: {size: 224}}", 64);
  print_rates("synthetic 1024 tokens", "{train: {format: synthetic, samples: 100000}}", 64, 1024);
}

TEST(Throughput, PrintsRatesOfMnist) {
  GPUTRAIN_NEED_DATA(folder, "mnist");
  print_rates("mnist", "{train: {path: " + folder + ", format: idx}}", 64);
}

TEST(Throughput, PrintsRatesOfShakespeare) {
  GPUTRAIN_NEED_DATA(file, "tinyshakespeare.txt");
  print_rates("tinyshakespeare", "{train: {path: " + file + ", format: text}}", 12, 64);
}

TEST(Throughput, PrintsRatesOfCifar) {
  GPUTRAIN_NEED_DATA(file, "cifar10-jpg.tar");
  print_rates("cifar10-jpg.tar",
              "{train: {path: " + file +
                  ", format: tar, prefix: train}, image: {augment: {random_crop_padding: 4, hflip: 0.5}}}",
              128);
}

TEST(Throughput, PrintsRatesOfPhotographs) {
  GPUTRAIN_NEED_DATA(file, "imagenet-sample-250.tar");
  print_rates("imagenet-sample-250.tar",
              "{train: {path: " + file +
                  ", format: tar}, image: {size: 224, augment: {random_resized_crop: [0.08, 1.0], hflip: 0.5}}}",
              64);
}

}  // namespace
}  // namespace gputrain::datasets
