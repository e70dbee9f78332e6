#include "gputrain/core/atomic_file.hpp"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool syncs_fail = false;

/// Overrides the C library's fsync().
extern "C" __attribute__((visibility("default"))) int fsync(int descriptor) {
  if (!syncs_fail) return static_cast<int>(::syscall(SYS_fsync, descriptor));
  errno = EIO;
  return -1;
}

namespace gputrain {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string content_of(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  size_t files_in_folder() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  const fs::path folder_ = fs::temp_directory_path() / ("gputrain_atomic_file_" + std::to_string(::getpid()));
};

TEST_F(AtomicFileTest, FollowsNoLinkBesideIt) {
  write_file_atomically(folder_ / "other", "kept", ExitCode::environment);
  fs::create_symlink("other", folder_ / "a.json.partial");
  write_file_atomically(folder_ / "a.json", "new", ExitCode::environment);
  EXPECT_EQ(content_of(folder_ / "other"), "kept");
  EXPECT_EQ(content_of(folder_ / "a.json"), "new");
  EXPECT_FALSE(fs::is_symlink(folder_ / "a.json"));
}

TEST_F(AtomicFileTest, ReplacesOldContentOnCommit) {
  const fs::path path = folder_ / "summary.json";
  write_file_atomically(path, "old", ExitCode::internal);
  AtomicFile file(path, ExitCode::internal);
  file.write("ne");
  file.write("w");
  EXPECT_EQ(content_of(path), "old");
  file.commit();
  EXPECT_EQ(content_of(path), "new");
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(AtomicFileTest, LeavesNothingWithoutCommit) {
  { AtomicFile(folder_ / "a", ExitCode::internal).write("half"); }
  EXPECT_EQ(files_in_folder(), 0u);
}

TEST_F(AtomicFileTest, OverwritesLeftoversOfKilledWriter) {
  std::ofstream(folder_ / "a.partial") << "a longer rest of an earlier attempt";
  write_file_atomically(folder_ / "a", "whole", ExitCode::internal);
  EXPECT_EQ(content_of(folder_ / "a"), "whole");
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(AtomicFileTest, NamesPathAndReasonWithoutFolder) {
  try {
    AtomicFile file(folder_ / "nowhere" / "a", ExitCode::checkpoint);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    EXPECT_EQ(error.parts().where, (folder_ / "nowhere" / "a").string());
    EXPECT_NE(error.parts().what.find("No such file or directory"), std::string::npos);
  }
}

// A file size limit makes the kernel fail a write in the middle, like a full disk.
TEST_F(AtomicFileTest, KeepsOldFileWhenDiskRefuses) {
  const fs::path path = folder_ / "model";
  write_file_atomically(path, "old", ExitCode::checkpoint);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1000, before.rlim_max};
  auto* handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(write_file_atomically(path, std::string(5000, 'x'), ExitCode::checkpoint), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(content_of(path), "old");
  EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(AtomicFileTest, KeepsOldFileWhenSyncFails) {
  const fs::path path = folder_ / "model";
  write_file_atomically(path, "old", ExitCode::checkpoint);
  EXPECT_NO_THROW(sync_file(path, ExitCode::checkpoint));
  EXPECT_NO_THROW(sync_file(folder_ / "absent", ExitCode::checkpoint));
  syncs_fail = true;
  EXPECT_THROW(write_file_atomically(path, "new", ExitCode::checkpoint), Error);
  EXPECT_THROW(sync_file(path, ExitCode::checkpoint), Error);
  EXPECT_THROW(sync_folder(folder_, ExitCode::checkpoint), Error);
  syncs_fail = false;
  EXPECT_EQ(content_of(path), "old");
  EXPECT_EQ(files_in_folder(), 1u);
}

// O_DIRECT on most file systems requires whole sectors and aligned memory.
TEST_F(AtomicFileTest, WritesPartialSectorsThroughPageCache) {
  AtomicFile file(folder_ / "a", ExitCode::internal);
  file.bypass_page_cache(true);
  file.write("no whole sector");
  file.commit();
  EXPECT_EQ(content_of(folder_ / "a"), "no whole sector");
}

}  // namespace
}  // namespace gputrain
