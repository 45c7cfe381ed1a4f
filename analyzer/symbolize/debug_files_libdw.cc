// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <elfutils/libdwfl.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analyzer/symbolize/debug_files.h"
#include "analyzer/symbolize/demangle.h"
#include "analyzer/symbolize/frames.h"

namespace dstrace::symbolize {
namespace {

using model::FrameText;

// libdw is opened, not linked: the program runs where it is not installed.
class Libdw {
 public:
  // Null where libdw.so.1 or one of the functions is missing.
  static const Libdw* Get() {
    static const Libdw* const libdw = [] {
      auto* candidate = new Libdw;  // lives as long as the program
      return candidate->Load() ? candidate : nullptr;
    }();
    return libdw;
  }

// clang-format off
#define DSTRACE_LIBDW_FUNCTIONS(X) \
  X(dwfl_begin) \
  X(dwfl_end) \
  X(dwfl_report_offline) \
  X(dwfl_report_end) \
  X(dwfl_module_info) \
  X(dwfl_module_build_id) \
  X(dwfl_module_getsrc) \
  X(dwfl_module_addrname) \
  X(dwfl_lineinfo) \
  X(dwfl_offline_section_address) \
  X(dwfl_standard_find_debuginfo)
// clang-format on
#define DSTRACE_DECLARE(name) decltype(&::name) name = nullptr;
  DSTRACE_LIBDW_FUNCTIONS(DSTRACE_DECLARE)
#undef DSTRACE_DECLARE

 private:
  bool Load() {
    void* const library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    bool all = true;
#define DSTRACE_LOAD(name)                                        \
  name = reinterpret_cast<decltype(name)>(dlsym(library, #name)); \
  all = all && name != nullptr;
    DSTRACE_LIBDW_FUNCTIONS(DSTRACE_LOAD)
#undef DSTRACE_LOAD
    return all;
  }
};

// The debug information of one module file, as libdw lays it out in a space of
// addresses of its own.
class DebugFile {
 public:
  DebugFile(const Libdw& libdw, const model::Module& module) : libdw_(libdw) {
    callbacks_.find_elf = nullptr;
    callbacks_.find_debuginfo = libdw.dwfl_standard_find_debuginfo;
    callbacks_.section_address = libdw.dwfl_offline_section_address;
    for (const std::string& path : {module.path, DebugPath(module.build_id)}) {
      if (Open(path, module.build_id)) return;
    }
  }
  ~DebugFile() { Close(); }
  DebugFile(const DebugFile&) = delete;
  DebugFile& operator=(const DebugFile&) = delete;

  bool found() const { return module_ != nullptr; }

  // `offset`: of the instruction from the start of the mapped module.
  void Fill(uint64_t offset, FrameText* text) const {
    const Dwarf_Addr address = low_ + offset;
    if (Dwfl_Line* line = libdw_.dwfl_module_getsrc(module_, address)) {
      int number = 0;
      const char* file = libdw_.dwfl_lineinfo(line, nullptr, &number, nullptr,
                                              nullptr, nullptr);
      if (file != nullptr && number > 0) {
        text->file = file;
        text->line = static_cast<uint32_t>(number);
      }
    }
    if (!text->function.empty()) return;
    const char* name = libdw_.dwfl_module_addrname(module_, address);
    if (name != nullptr) text->function = ShortName(Demangle(name));
  }

 private:
  static std::string DebugPath(const std::string& build_id) {
    static constexpr char kHex[] = "0123456789abcdef";
    std::string hex;
    for (const char c : build_id) {
      hex += kHex[static_cast<unsigned char>(c) >> 4];
      hex += kHex[static_cast<unsigned char>(c) & 15];
    }
    return "/usr/lib/debug/.build-id/" + hex.substr(0, 2) + "/" +
           hex.substr(2) + ".debug";
  }

  bool Open(const std::string& path, const std::string& build_id) {
    dwfl_ = libdw_.dwfl_begin(&callbacks_);
    if (dwfl_ == nullptr) return false;
    module_ = libdw_.dwfl_report_offline(dwfl_, "", path.c_str(), -1);
    libdw_.dwfl_report_end(dwfl_, nullptr, nullptr);
    if (module_ != nullptr && HasBuildId(build_id)) {
      libdw_.dwfl_module_info(module_, nullptr, &low_, nullptr, nullptr,
                              nullptr, nullptr, nullptr);
      return true;
    }
    Close();
    return false;
  }

  bool HasBuildId(const std::string& wanted) const {
    const unsigned char* bits = nullptr;
    GElf_Addr address = 0;
    const int length = libdw_.dwfl_module_build_id(module_, &bits, &address);
    return length > 0 &&
           wanted == std::string_view(reinterpret_cast<const char*>(bits),
                                      static_cast<size_t>(length));
  }

  void Close() {
    if (dwfl_ != nullptr) libdw_.dwfl_end(dwfl_);
    dwfl_ = nullptr;
    module_ = nullptr;
  }

  const Libdw& libdw_;
  Dwfl_Callbacks callbacks_ = {};
  Dwfl* dwfl_ = nullptr;
  Dwfl_Module* module_ = nullptr;
  Dwarf_Addr low_ = 0;
};

// One for all modules that are the same file: a trace has a module again each
// time the set of loaded ones changed, and libdw keeps what it opened open.
class DebugFiles {
 public:
  explicit DebugFiles(const Libdw& libdw) : libdw_(libdw) {}

  const DebugFile& Of(const model::Module& module) {
    return files_.try_emplace({module.path, module.build_id}, libdw_, module)
        .first->second;
  }

 private:
  const Libdw& libdw_;
  std::map<std::pair<std::string, std::string>, DebugFile> files_;
};

}  // namespace

std::vector<FrameText> DescribeWithDebugFiles(const model::Stacks& stacks) {
  std::vector<FrameText> out = Describe(stacks);
  const Libdw* const libdw = Libdw::Get();
  if (libdw == nullptr) return out;
  DebugFiles files(*libdw);
  std::vector<const DebugFile*> of_module(stacks.modules.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const model::Frame& frame = stacks.frames[i];
    if (frame.kind != model::Frame::Kind::kNative || frame.module < 0 ||
        static_cast<size_t>(frame.module) >= of_module.size()) {
      continue;
    }
    const model::Module& module = stacks.modules[frame.module];
    if (module.build_id.empty() || frame.pc <= module.base) continue;
    const DebugFile*& file = of_module[frame.module];
    if (file == nullptr) file = &files.Of(module);
    // A return address is behind its call: the call is on the line asked for.
    if (file->found()) file->Fill(frame.pc - 1 - module.base, &out[i]);
  }
  return out;
}

}  // namespace dstrace::symbolize
