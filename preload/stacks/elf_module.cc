// SPDX-License-Identifier: Apache-2.0
#include "preload/stacks/elf_module.h"

#include <link.h>

#include <cstring>

#include "preload/runtime/fork_gate.h"

namespace dstrace::stacks {
namespace {

constexpr char kGnuNoteName[4] = {'G', 'N', 'U', '\0'};

struct Visit {
  ModuleVisitor visit;
  void* argument;
};

// The loader rewrites the pointers of most modules to absolute addresses; the
// vDSO keeps offsets.
uintptr_t DynamicPointer(uintptr_t base, uintptr_t value) noexcept {
  return value < base ? base + value : value;
}

template <typename T>
const T* At(uintptr_t address) noexcept {
  return reinterpret_cast<const T*>(address);
}

void ReadDynamic(const Elf64_Dyn* dynamic, ElfModule* module) noexcept {
  for (; dynamic->d_tag != DT_NULL; ++dynamic) {
    const uintptr_t pointer = DynamicPointer(module->base, dynamic->d_un.d_ptr);
    switch (dynamic->d_tag) {
      case DT_SYMTAB:
        module->symbols = At<Elf64_Sym>(pointer);
        break;
      case DT_STRTAB:
        module->strings = At<char>(pointer);
        break;
      case DT_STRSZ:
        module->strings_size = dynamic->d_un.d_val;
        break;
      case DT_GNU_HASH:
        module->gnu_hash = At<uint32_t>(pointer);
        break;
      case DT_HASH:
        module->sysv_hash = At<uint32_t>(pointer);
        break;
      default:
        break;
    }
  }
}

void ReadNotes(uintptr_t address, size_t size, ElfModule* module) noexcept {
  const uintptr_t end = address + size;
  while (address + sizeof(Elf64_Nhdr) <= end) {
    const auto* note = At<Elf64_Nhdr>(address);
    const uintptr_t name = address + sizeof(Elf64_Nhdr);
    const uintptr_t data = name + ((note->n_namesz + 3u) & ~3u);
    const uintptr_t next = data + ((note->n_descsz + 3u) & ~3u);
    if (next > end) return;
    if (note->n_type == NT_GNU_BUILD_ID &&
        note->n_namesz == sizeof(kGnuNoteName) &&
        memcmp(At<char>(name), kGnuNoteName, sizeof(kGnuNoteName)) == 0) {
      module->build_id = At<uint8_t>(data);
      module->build_id_size = note->n_descsz;
      return;
    }
    address = next;
  }
}

ElfModule Describe(const dl_phdr_info& info) noexcept {
  ElfModule module;
  module.base = info.dlpi_addr;
  module.start = UINTPTR_MAX;
  module.name = info.dlpi_name == nullptr ? "" : info.dlpi_name;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const Elf64_Phdr& segment = info.dlpi_phdr[i];
    const uintptr_t address = module.base + segment.p_vaddr;
    if (segment.p_type == PT_LOAD) {
      if (address < module.start) module.start = address;
      if (address + segment.p_memsz > module.end)
        module.end = address + segment.p_memsz;
    } else if (segment.p_type == PT_DYNAMIC) {
      ReadDynamic(At<Elf64_Dyn>(address), &module);
    } else if (segment.p_type == PT_NOTE && module.build_id == nullptr) {
      ReadNotes(address, segment.p_memsz, &module);
    }
  }
  return module;
}

int OnModule(dl_phdr_info* info, size_t, void* data) {
  const auto* visit = static_cast<const Visit*>(data);
  return visit->visit(Describe(*info), visit->argument) ? 1 : 0;
}

bool IsDefined(const Elf64_Sym& symbol) noexcept {
  const unsigned type = ELF64_ST_TYPE(symbol.st_info);
  return symbol.st_shndx != SHN_UNDEF &&
         (type == STT_FUNC || type == STT_OBJECT || type == STT_NOTYPE);
}

bool Matches(const ElfModule& module, const Elf64_Sym& symbol,
             const char* name) noexcept {
  return IsDefined(symbol) && strcmp(SymbolName(module, symbol), name) == 0;
}

// The GNU hash table: header of four words, bloom filter, buckets, chains.
struct GnuHash {
  uint32_t buckets;
  uint32_t first_symbol;
  uint32_t bloom_words;
  uint32_t bloom_shift;
  const uint64_t* bloom;
  const uint32_t* bucket;
  const uint32_t* chain;  // chain[i - first_symbol] belongs to symbol i
};

GnuHash ReadGnuHash(const uint32_t* table) noexcept {
  GnuHash hash{table[0], table[1], table[2], table[3],
               nullptr,  nullptr,  nullptr};
  hash.bloom = At<uint64_t>(reinterpret_cast<uintptr_t>(table + 4));
  hash.bucket = table + 4 + 2 * size_t{hash.bloom_words};
  hash.chain = hash.bucket + hash.buckets;
  return hash;
}

const Elf64_Sym* FindByGnuHash(const ElfModule& module,
                               const char* name) noexcept {
  const GnuHash table = ReadGnuHash(module.gnu_hash);
  if (table.buckets == 0 || table.bloom_words == 0) return nullptr;
  uint32_t hash = 5381;
  for (const char* c = name; *c != '\0'; ++c)
    hash = hash * 33 + static_cast<uint8_t>(*c);
  const uint64_t word = table.bloom[(hash / 64) & (table.bloom_words - 1)];
  const uint64_t mask =
      (1ull << (hash & 63)) | (1ull << ((hash >> table.bloom_shift) & 63));
  if ((word & mask) != mask) return nullptr;
  uint32_t index = table.bucket[hash % table.buckets];
  if (index < table.first_symbol) return nullptr;
  for (;; ++index) {
    const uint32_t entry = table.chain[index - table.first_symbol];
    if ((entry | 1) == (hash | 1) &&
        Matches(module, module.symbols[index], name)) {
      return &module.symbols[index];
    }
    if ((entry & 1) != 0) return nullptr;
  }
}

const Elf64_Sym* FindBySysvHash(const ElfModule& module,
                                const char* name) noexcept {
  const uint32_t buckets = module.sysv_hash[0];
  const uint32_t chains = module.sysv_hash[1];
  if (buckets == 0) return nullptr;
  uint32_t hash = 0;
  for (const char* c = name; *c != '\0'; ++c) {
    hash = (hash << 4) + static_cast<uint8_t>(*c);
    const uint32_t high = hash & 0xf0000000u;
    hash = (hash ^ (high >> 24)) & ~high;
  }
  const uint32_t* bucket = module.sysv_hash + 2;
  const uint32_t* chain = bucket + buckets;
  for (uint32_t i = bucket[hash % buckets]; i != 0 && i < chains;
       i = chain[i]) {
    if (Matches(module, module.symbols[i], name)) return &module.symbols[i];
  }
  return nullptr;
}

struct Search {
  uintptr_t pc;
  ElfModule* found;
};

}  // namespace

bool ForEachModule(ModuleVisitor visit, void* argument) noexcept {
  Visit state{visit, argument};
  const runtime::ForkGate::Visit gate(runtime::ForkGate::Patience::kSome);
  if (!gate.entered()) return false;
  return dl_iterate_phdr(OnModule, &state) != 0;
}

const Elf64_Sym* FindSymbolEntry(const ElfModule& module,
                                 const char* name) noexcept {
  if (module.symbols == nullptr || module.strings == nullptr) return nullptr;
  if (module.gnu_hash != nullptr) return FindByGnuHash(module, name);
  if (module.sysv_hash != nullptr) return FindBySysvHash(module, name);
  return nullptr;
}

uintptr_t FindSymbol(const ElfModule& module, const char* name) noexcept {
  const Elf64_Sym* symbol = FindSymbolEntry(module, name);
  return symbol == nullptr ? 0 : module.base + symbol->st_value;
}

uint32_t CountSymbols(const ElfModule& module) noexcept {
  if (module.sysv_hash != nullptr) return module.sysv_hash[1];
  if (module.gnu_hash == nullptr) return 0;
  const GnuHash table = ReadGnuHash(module.gnu_hash);
  uint32_t last = 0;
  for (uint32_t i = 0; i < table.buckets; ++i) {
    if (table.bucket[i] > last) last = table.bucket[i];
  }
  if (last < table.first_symbol) return 0;
  while ((table.chain[last - table.first_symbol] & 1) == 0) ++last;
  return last + 1;
}

const Elf64_Sym* FindSymbolAt(const ElfModule& module, uintptr_t pc) noexcept {
  if (module.symbols == nullptr || module.strings == nullptr) return nullptr;
  const uintptr_t value = pc - module.base;
  const uint32_t count = CountSymbols(module);
  for (uint32_t i = 1; i < count; ++i) {
    const Elf64_Sym& symbol = module.symbols[i];
    // Tested in the order of what rejects most.
    if (value - symbol.st_value >= symbol.st_size) continue;
    const unsigned type = ELF64_ST_TYPE(symbol.st_info);
    if (symbol.st_shndx == SHN_UNDEF) continue;
    if (type == STT_FUNC || type == STT_GNU_IFUNC) return &symbol;
  }
  return nullptr;
}

const char* SymbolName(const ElfModule& module,
                       const Elf64_Sym& symbol) noexcept {
  return symbol.st_name < module.strings_size ? module.strings + symbol.st_name
                                              : "";
}

bool FindModuleAt(uintptr_t pc, ElfModule* module) noexcept {
  Search search{pc, module};
  return ForEachModule(
      [](const ElfModule& candidate, void* argument) {
        auto* wanted = static_cast<Search*>(argument);
        if (wanted->pc < candidate.start || wanted->pc >= candidate.end)
          return false;
        *wanted->found = candidate;
        return true;
      },
      &search);
}

}  // namespace dstrace::stacks
