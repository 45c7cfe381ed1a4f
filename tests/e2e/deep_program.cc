// SPDX-License-Identifier: Apache-2.0
//
// Opens a library that allocates, in one of several ways, and calls it.
//
// usage: e2e_deep PLUGIN now|lazy|plain [missing]

#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>

extern "C" int cudaMalloc(void** pointer, size_t size);

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  void* pointer = nullptr;
  if (cudaMalloc(&pointer, 512) != 0) return 3;
  const int bind = strcmp(argv[2], "lazy") == 0 ? RTLD_LAZY : RTLD_NOW;
  const int deep = strcmp(argv[2], "plain") == 0 ? 0 : RTLD_DEEPBIND;
  void* library = dlopen(argv[1], bind | deep);
  if (argc > 3) {
    // Not there: the loader's own message.
    printf("%s\n", library == nullptr ? dlerror() : "opened");
    return 0;
  }
  if (library == nullptr) return 4;
  const auto pair =
      reinterpret_cast<int (*)(size_t)>(dlsym(library, "plugin_pair"));
  if (pair == nullptr || pair(4096) != 0) return 5;
  if (cudaMalloc(&pointer, 1024) != 0) return 6;
  printf("done\n");
  return 0;
}
