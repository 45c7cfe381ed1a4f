// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/symbol.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "preload/stacks/elf_module.h"
#include "preload/stacks/symbol_index.h"

namespace dstrace::stacks {
namespace {

struct Request {
  uintptr_t pc;
  SymbolInfo* symbol;  // null: the module only
  ModuleInfo* module;
};

void CopyText(const char* text, char* out, size_t size) noexcept {
  const size_t length = strnlen(text, size - 1);
  memcpy(out, text, length);
  out[length] = '\0';
}

void CopyModule(const ElfModule& module, ModuleInfo* out) noexcept {
  out->base = module.base;
  out->start = module.start;
  out->end = module.end;
  out->build_id_size = module.build_id_size <= ModuleInfo::kMaxBuildId
                           ? module.build_id_size
                           : 0;
  if (out->build_id_size > 0)
    memcpy(out->build_id, module.build_id, out->build_id_size);
  CopyText(module.name, out->path, sizeof(out->path));
}

// Runs while the module list is locked: the strings cannot vanish.
bool OnModule(const ElfModule& module, void* argument) {
  const auto* request = static_cast<const Request*>(argument);
  if (request->pc < module.start || request->pc >= module.end) return false;
  CopyModule(module, request->module);
  if (request->symbol == nullptr) return true;
  const Elf64_Sym* symbol = FindIndexedSymbolAt(module, request->pc);
  if (symbol != nullptr) {
    CopyText(SymbolName(module, *symbol), request->symbol->name,
             sizeof(request->symbol->name));
    request->symbol->offset = request->pc - module.base - symbol->st_value;
  }
  return true;
}

// The loader has no name for the executable.
void NameExecutable(ModuleInfo* module) noexcept {
  const ssize_t length =
      readlink("/proc/self/exe", module->path, sizeof(module->path) - 1);
  module->path[length > 0 ? length : 0] = '\0';
}

}  // namespace

bool DescribeModule(uintptr_t pc, ModuleInfo* info) noexcept {
  const int saved_errno = errno;
  Request request{pc, nullptr, info};
  const bool found = ForEachModule(OnModule, &request);
  if (found && info->path[0] == '\0') NameExecutable(info);
  errno = saved_errno;
  return found;
}

bool DescribeNative(uintptr_t pc, SymbolInfo* info) noexcept {
  const int saved_errno = errno;
  info->name[0] = '\0';
  info->offset = 0;
  Request request{pc, info, &info->module};
  const bool found = ForEachModule(OnModule, &request);
  if (found && info->module.path[0] == '\0') NameExecutable(&info->module);
  errno = saved_errno;
  return found;
}

}  // namespace dstrace::stacks
