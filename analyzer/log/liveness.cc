// SPDX-License-Identifier: Apache-2.0
#include "analyzer/log/liveness.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"

namespace dstrace::log {
namespace {

bool IsThisHost(const std::string& host) {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && host == name.data();
}

bool IsMapped(const File& file, uint32_t pid) {
  std::ifstream maps(absl::StrCat("/proc/", pid, "/maps"));
  std::string line;
  while (std::getline(maps, line)) {
    unsigned major_number = 0;
    unsigned minor_number = 0;
    uint64_t inode = 0;
    const int fields = std::sscanf(line.c_str(), "%*s %*s %*s %x:%x %" SCNu64,
                                   &major_number, &minor_number, &inode);
    if (fields == 3 && inode == file.inode() &&
        makedev(major_number, minor_number) == file.device()) {
      return true;
    }
  }
  return false;
}

bool IsOpen(const File& file, uint32_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid, "/fd");
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()),
                                                    closedir);
  if (entries == nullptr) return false;
  while (const dirent* const entry = readdir(entries.get())) {
    struct stat stat_of {};
    const std::string path = absl::StrCat(folder, "/", entry->d_name);
    if (stat(path.c_str(), &stat_of) == 0 && stat_of.st_ino == file.inode() &&
        stat_of.st_dev == file.device()) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool IsBeingWritten(const File& file, const std::string& host, uint32_t pid) {
  if (pid == 0 || !IsThisHost(host)) return false;
  return IsMapped(file, pid) || IsOpen(file, pid);
}

}  // namespace dstrace::log
