// SPDX-License-Identifier: Apache-2.0
#include "cupti/library.h"

#include <dlfcn.h>

namespace dstrace::cupti {
namespace {

struct Release {
  const char* runtime;
  const char* cupti;
};

// Newest first.
constexpr Release kReleases[] = {
    {"libcudart.so.13", "libcupti.so.13"},
    {"libcudart.so.12", "libcupti.so.12"},
    {"libcudart.so.11.0", "libcupti.so.11.8"},
};

// A toolkit's own folder, which is not on the loader's path.
constexpr const char* kPaths[] = {
    "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
    "/usr/local/cuda/lib64/libcupti.so",
};

// Never closed again: one reference more or less to a library that stays.
void* Loaded(const char* name) noexcept {
  return dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
}

void* Open() noexcept {
  for (const Release& release : kReleases) {
    if (void* handle = Loaded(release.cupti); handle != nullptr) return handle;
  }
  for (const Release& release : kReleases) {
    if (Loaded(release.runtime) == nullptr) continue;
    void* handle = dlopen(release.cupti, RTLD_LAZY | RTLD_LOCAL);
    if (handle != nullptr) return handle;
  }
  for (const Release& release : kReleases) {
    void* handle = dlopen(release.cupti, RTLD_LAZY | RTLD_LOCAL);
    if (handle != nullptr) return handle;
  }
  for (const char* path : kPaths) {
    void* handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (handle != nullptr) return handle;
  }
  return nullptr;
}

template <class F>
bool Find(const DstraceCuptiHost& host, void* handle, const char* name,
          F*& function) noexcept {
  function = reinterpret_cast<F*>(host.dlsym(handle, name));
  return function != nullptr;
}

}  // namespace

bool LoadCupti(const DstraceCuptiHost& host, Functions* functions,
               const char** why) noexcept {
  void* handle = Open();
  if (handle == nullptr) {
    *why = "no libcupti.so found";
    return false;
  }
  bool complete = true;
#define DSTRACE_FIND_CUPTI(name, parameters) \
  complete = Find(host, handle, #name, functions->name) && complete;
  DSTRACE_CUPTI_FUNCTIONS(DSTRACE_FIND_CUPTI)
#undef DSTRACE_FIND_CUPTI
  // Left open: a CUPTI that has met the driver cannot be unloaded.
  if (!complete) *why = "libcupti.so lacks a function";
  return complete;
}

}  // namespace dstrace::cupti
