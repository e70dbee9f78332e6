#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/sample_job.hpp"
#include "gputrain/config/load.hpp"

namespace gputrain::config {
namespace {

using testing::HasSubstr;

std::optional<std::string> sample_environment(const std::string& name) {
  if (name == "DATA") return "/mnt/data";
  if (name == "LR") return "0.25";
  if (name == "EMPTY") return "";
  if (name == "SLY") return "${name}";
  if (name == "RUDE") return "a\x1b[31m";
  return std::nullopt;
}

Request request_of(const std::string& lines) {
  const std::string rest = "model: {type: mlp}\ndata: {train: {path: x}}\ntrain: {max_steps: 1}\n";
  return {.file = "job.yaml", .text = rest + lines, .environment = sample_environment};
}

SampleJob job_of(const std::string& lines) { return load(schema_of<SampleJob>(), request_of(lines)).as<SampleJob>(); }

std::string variables_refusal(const std::string& lines) {
  try {
    load(schema_of<SampleJob>(), request_of(lines));
    return "accepted";
  } catch (const SpecError& error) {
    return error.what();
  }
}

TEST(Interpolation, ReadsVarsThenTopLevelValues) {
  EXPECT_EQ(job_of("vars: {seed: inner}\nseed: 5\nname: ${seed}\n").name, "inner");
  EXPECT_EQ(job_of("seed: 5\nname: run-${seed}\n").name, "run-5");
}

TEST(Interpolation, ReadsTopLevelDefaults) {
  EXPECT_EQ(job_of("name: run-${seed}\n").name, "run-1337");
  EXPECT_EQ(job_of("name: x\n").output_dir, "runs/x");
  EXPECT_EQ(job_of("").output_dir, "runs/run");
}

TEST(Interpolation, ReadsEnvironmentAndItsDefaults) {
  EXPECT_EQ(job_of("name: \"${env:DATA}\"\n").name, "/mnt/data");
  EXPECT_EQ(job_of("name: \"${env:ABSENT:-a:-b}\"\n").name, "a:-b");
  EXPECT_EQ(job_of("name: \"${env:EMPTY:-full}\"\n").name, "full");
  EXPECT_EQ(job_of("name: \"${env:EMPTY}\"\n").name, "");
  EXPECT_EQ(job_of("name: \"${env:ABSENT:-}\"\n").name, "");
}

TEST(Interpolation, KeepsTypeOfAWholeValueEvenInQuotes) {
  EXPECT_EQ(job_of("optimizer: {type: sgd, lr: \"${env:LR}\"}\n").optimizer.rule.as<SgdSpec>().lr, 0.25);
  EXPECT_EQ(job_of("vars: {n: 7}\nseed: ${n}\n").seed, 7);
  EXPECT_THAT(variables_refusal("vars: {n: \"7\"}\nseed: ${n}\n"),
              HasSubstr("seed must be a whole number, not the quoted text '7'"));
  EXPECT_THAT(variables_refusal("seed: \"1${seed2}\"\nvars: {seed2: 2}\n"), HasSubstr("the quoted text '12'"));
}

TEST(Interpolation, HappensOnce) {
  EXPECT_EQ(job_of("name: \"${env:SLY}\"\n").name, "${name}");
  EXPECT_EQ(job_of("vars: {a: \"$${b}\"}\nname: ${a}\n").name, "${b}");
  EXPECT_EQ(job_of("vars: {a: \"${b}/a\", b: \"${c}/b\", c: c}\nname: ${a}\n").name, "c/b/a");
}

TEST(Interpolation, LeavesOtherDollarsAlone) {
  EXPECT_EQ(job_of("name: a$b$$c$\n").name, "a$b$$c$");
  EXPECT_EQ(job_of("name: \"$${x}$$\"\n").name, "${x}$$");
}

TEST(Interpolation, KeepsLiteralDollarsInResolvedFile) {
  const Loaded loaded = load(schema_of<SampleJob>(), request_of("name: \"$${x} $$$${y}\"\n"));
  EXPECT_EQ(loaded.as<SampleJob>().name, "${x} $$${y}");
  const Loaded again = load(schema_of<SampleJob>(), {.text = loaded.resolved_yaml()});
  EXPECT_EQ(again.as<SampleJob>().name, "${x} $$${y}");
}

TEST(Interpolation, RefusesWhatItCannotResolve) {
  EXPECT_THAT(variables_refusal("name: ${sed}\n"), HasSubstr("did you mean 'seed'?"));
  EXPECT_THAT(variables_refusal("name: ${LR}\n"), HasSubstr("for the environment variable write ${env:LR}"));
  EXPECT_THAT(variables_refusal("name: ${env:ABSENT}\n"), HasSubstr("'ABSENT' is not set"));
  EXPECT_THAT(variables_refusal("name: ${env:ABSENT:-${seed}}\n"), HasSubstr("inside the default of another"));
  EXPECT_THAT(variables_refusal("name: ${env:RUDE}\n"), HasSubstr("not plain text"));
  EXPECT_THAT(variables_refusal("name: ${train}\n"), HasSubstr("names a list or a group"));
  EXPECT_THAT(variables_refusal("name: ${train.max_steps}\n"), HasSubstr("there is no value 'train.max_steps'"));
  EXPECT_THAT(variables_refusal("name: ${name}\n"), HasSubstr("refers to itself"));
  EXPECT_THAT(variables_refusal("name: ${oc.env:X}\n"), HasSubstr("there is no value 'oc.env:X'"));
  EXPECT_THAT(variables_refusal("vars: {a: null}\nname: x${a}\n"), HasSubstr("null, which cannot be part of a text"));
  EXPECT_THAT(variables_refusal("vars: 3\n"), HasSubstr("vars must be a group of names and values, not '3'"));
}

// A check of several keys would miss the one that failed.
TEST(Interpolation, RunsNoChecksWithoutAValue) {
  const std::string text = "model: {type: mlp}\ndata: {train: {path: x}}\ntrain:\n  max_steps: ${nope}\n";
  try {
    load(schema_of<SampleJob>(), {.file = "job.yaml", .text = text, .environment = sample_environment});
    FAIL() << "accepted";
  } catch (const SpecError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::StartsWith("1 mistake"), HasSubstr("no value 'nope'")));
  }
}

TEST(Interpolation, ReportsAFailureOnce) {
  const std::string page = variables_refusal("seed: ${nope}\n");
  EXPECT_THAT(page, testing::StartsWith("1 mistake in job.yaml"));
}

}  // namespace
}  // namespace gputrain::config
