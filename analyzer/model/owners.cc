// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/owners.h"

#include <array>
#include <utility>

namespace dstrace::model {
namespace {

constexpr int64_t kNotAsked = -1;
constexpr int64_t kOnTheWay = -2;

struct Rule {
  std::string_view start;  // of the file's name
  std::string_view owner;  // empty: on the way to the driver
};

// The first match wins.
constexpr std::array kFileRules = {
    Rule{"libdstrace", ""},
    Rule{"libcuda.so", ""},
    Rule{"libcudart", ""},
    Rule{"libcudadebugger", ""},
    Rule{"libcupti", ""},
    Rule{"libnvidia-", ""},
    Rule{"libc.so", ""},
    Rule{"libc-2.", ""},
    Rule{"libm.so", ""},
    Rule{"libdl.so", ""},
    Rule{"libdl-2.", ""},
    Rule{"librt.so", ""},
    Rule{"libpthread", ""},
    Rule{"ld-linux", ""},
    Rule{"ld-2.", ""},
    Rule{"libgcc_s", ""},
    Rule{"libstdc++", ""},
    Rule{"libc++", ""},
    Rule{"libasan", ""},
    Rule{"libtsan", ""},
    Rule{"libubsan", ""},
    Rule{"libunwind", ""},
    Rule{"libffi", ""},
    Rule{"_ctypes.", ""},
    Rule{"linux-vdso", ""},
    Rule{"[vdso]", ""},
    Rule{"libc10", "torch"},
    Rule{"libtorch", "torch"},
    Rule{"libcaffe2", "torch"},
    Rule{"libnccl", "nccl"},
    Rule{"libcublasLt", "cublasLt"},
    Rule{"libcublas", "cublas"},
    Rule{"libcudnn", "cudnn"},
    Rule{"libcusparse", "cusparse"},
    Rule{"libcusolver", "cusolver"},
    Rule{"libcufft", "cufft"},
    Rule{"libcurand", "curand"},
    Rule{"libnvshmem", "nvshmem"},
    Rule{"libnvrtc", "nvrtc"},
    Rule{"libnvjpeg", "nvjpeg"},
    Rule{"librmm", "rmm"},
    Rule{"libucp", "ucx"},
    Rule{"libuct", "ucx"},
    Rule{"libucs", "ucx"},
    Rule{"libmpi", "mpi"},
    Rule{"xla_", "jax"},
    Rule{"libxla", "jax"},
    Rule{"libpython", "python"},
    Rule{"python", "python"},
};

// Parts of a path that name the owner where the file's name does not.
constexpr std::array kPathRules = {
    Rule{"/cupy", "cupy"},      Rule{"/jaxlib/", "jax"},
    Rule{"/jax_cuda", "jax"},   Rule{"/jax_plugins/", "jax"},
    Rule{"/triton/", "triton"}, Rule{"/.triton/", "triton"},
};

std::string_view FileName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

// ".../site-packages/<package>/..."; NVIDIA's packages share one folder.
std::string_view PythonPackage(std::string_view path) {
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = path.rfind(folder);
    if (at == std::string_view::npos) continue;
    std::string_view rest = path.substr(at + folder.size());
    if (rest.starts_with("nvidia/")) rest.remove_prefix(7);
    const size_t slash = rest.find('/');
    if (slash != std::string_view::npos) return rest.substr(0, slash);
  }
  return {};
}

std::string_view Stem(std::string_view file) {
  if (file.starts_with("lib")) file.remove_prefix(3);
  // "name.so.1", "name.cpython-311-x86_64-linux-gnu.so"
  const size_t dot = file.find('.');
  if (dot != std::string_view::npos && dot > 0 &&
      file.find(".so") != std::string_view::npos) {
    file = file.substr(0, dot);
  }
  return file;
}

bool IsCtypes(std::string_view path) {
  return FileName(path).starts_with("_ctypes.");
}

}  // namespace

std::string OwnerOfModule(std::string_view path) {
  // A deleted or upgraded file is shown as "path (deleted)".
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
  const std::string_view file = FileName(path);
  for (const Rule& rule : kFileRules) {
    if (file.starts_with(rule.start)) return std::string(rule.owner);
  }
  for (const Rule& rule : kPathRules) {
    if (path.find(rule.start) != std::string_view::npos) {
      return std::string(rule.owner);
    }
  }
  const std::string_view package = PythonPackage(path);
  return std::string(package.empty() ? Stem(file) : package);
}

Owners::Owners(const Stacks& stacks)
    : stacks_(stacks),
      by_module_(stacks.modules.size(), kNotAsked),
      by_stack_(stacks.stacks.size(), kNotAsked) {
  Intern("torch");
  Intern("unknown");
}

OwnerId Owners::Intern(const std::string& name) {
  const auto [entry, added] =
      ids_.try_emplace(name, static_cast<OwnerId>(names_.size()));
  if (added) names_.push_back(name);
  return entry->second;
}

OwnerId Owners::OfPythonCode(std::string_view file) {
  const std::string_view package = PythonPackage(file);
  return Intern(package.empty() ? "python" : std::string(package));
}

OwnerId Owners::Of(StackId stack) {
  if (stack >= by_stack_.size()) return kOwnerUnknown;
  int64_t& known = by_stack_[stack];
  if (known == kNotAsked) known = Find(stack);
  return static_cast<OwnerId>(known);
}

OwnerId Owners::Find(StackId stack) {
  bool by_ctypes = false;
  for (const uint32_t index : stacks_.stacks[stack].frames) {
    const Frame& frame = stacks_.frames[index];
    if (by_ctypes && frame.kind == Frame::Kind::kPython) {
      return OfPythonCode(frame.file);
    }
    if (frame.kind != Frame::Kind::kNative || frame.module < 0) continue;
    by_ctypes =
        by_ctypes ||
        IsCtypes(stacks_.modules[static_cast<size_t>(frame.module)].path);
    int64_t& owner = by_module_[static_cast<size_t>(frame.module)];
    if (owner == kNotAsked) {
      const std::string name = OwnerOfModule(
          stacks_.modules[static_cast<size_t>(frame.module)].path);
      owner = name.empty() ? kOnTheWay : int64_t{Intern(name)};
    }
    if (owner != kOnTheWay) return static_cast<OwnerId>(owner);
  }
  return kOwnerUnknown;
}

}  // namespace dstrace::model
