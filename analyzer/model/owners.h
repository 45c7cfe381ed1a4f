// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_MODEL_OWNERS_H_
#define DSTRACE_ANALYZER_MODEL_OWNERS_H_

// Whose memory an allocation is: the library whose code asked for it.
//
// That is the first native frame of the stack, innermost first, whose module
// is not part of the way down to the driver (libcuda, libcudart, libc, ...). A
// statically linked cudart is inside the library that asked, which fits. Where
// Python called by way of ctypes, it is the package whose Python code did, or
// "python" for a program of its own.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "analyzer/model/run.h"

namespace dstrace::model {

using OwnerId = uint32_t;
inline constexpr OwnerId kOwnerTorch = 0;
inline constexpr OwnerId kOwnerUnknown = 1;  // no native frame that tells

// The owner's name for code in the module at `path`: "torch", "nccl",
// "cublasLt", ..., the Python package, or the file's name without "lib" and
// ".so". Empty for modules that only lead to the driver.
std::string OwnerOfModule(std::string_view path);

// Not thread-safe.
class Owners {
 public:
  // `stacks` must outlive this.
  explicit Owners(const Stacks& stacks);

  OwnerId Of(StackId stack);
  // For what is no library's: an owner of that name.
  OwnerId Named(const std::string& name) { return Intern(name); }
  [[nodiscard]] const std::string& Name(OwnerId id) const { return names_[id]; }
  [[nodiscard]] size_t size() const { return names_.size(); }

 private:
  OwnerId Intern(const std::string& name);
  OwnerId Find(StackId stack);
  OwnerId OfPythonCode(std::string_view file);

  const Stacks& stacks_;
  std::vector<std::string> names_;
  absl::flat_hash_map<std::string, OwnerId> ids_;
  std::vector<int64_t> by_module_;  // kNotAsked, kOnTheWay, or an OwnerId
  std::vector<int64_t> by_stack_;
};

}  // namespace dstrace::model

#endif  // DSTRACE_ANALYZER_MODEL_OWNERS_H_
