#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>

#include "command_line/command_line.hpp"
#include "gputrain/config/problem.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/process.hpp"
#include "gputrain/core/secrets.hpp"
#include "gputrain/core/wrap.hpp"

namespace {

using namespace gputrain;

bool stderr_has_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(STDERR_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0');
}

/// Prints one message to stderr and returns the exit code. An exception of a library may have a stack trace after its
/// first line: prints only that line.
int report(std::exception_ptr failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const ReportedElsewhere& error) {
    return static_cast<int>(error.code());
  } catch (const config::SpecError& error) {
    std::fprintf(stderr, "%s\n", error.render(stderr_has_colour()).c_str());
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", wrapped_for_stderr(std::string("error: ") + error.what()).c_str());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "error: out of memory\n  try: a smaller train.micro_batch_size\n");
    return static_cast<int>(ExitCode::environment);
  } catch (const std::filesystem::filesystem_error& error) {  // for instance, a folder that may not be read
    const Error told(ExitCode::environment, {.what = error.code().message(), .where = error.path1().string()});
    std::fprintf(stderr, "error: %s\n", told.what());
    return static_cast<int>(told.code());
  } catch (const std::exception& error) {
    const std::string text = without_url_secrets(error.what());
    std::fprintf(
        stderr,
        "internal error: %s\n  This is a bug of gputrain; please report it with the command and the job file.\n",
        text.substr(0, text.find('\n')).c_str());
    return static_cast<int>(ExitCode::internal);
  }
}

/// Flushes stdout: the output is the result of a subcommand, so `gputrain schema > FILE` must fail on a full disk.
/// Training keeps its results in the run folder.
int with_output_written(const CommandLine& line, int code) {
  const bool trains = line.got("run") || line.got("launch");
  if (trains || code != 0) return code;
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const std::string why = errno == 0 ? "" : std::string(": ") + std::strerror(errno);
  throw Error(ExitCode::environment, {.what = "cannot write the output to stdout" + why});
}

}  // namespace

int main(int argc, char** argv) {
  mend_inheritance();
  let_signals_end_init();
  raise_open_files_limit();
  try {
    CommandLine line;
    if (argc > 1 && std::strcmp(argv[1], "complete") == 0) return line.complete({argv + 2, argv + argc});
    if (const auto code = line.read({argv + 1, argv + argc})) return *code;
    require_current_folder();
    return with_output_written(line, line.act());
  } catch (...) {
    return report(std::current_exception());
  }
}
