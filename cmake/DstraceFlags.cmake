# SPDX-License-Identifier: Apache-2.0
# The one place for compiler flags. Every target of ours links dstrace_flags;
# everything that ends up in libdstrace.so links dstrace_preload_flags too.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(DSTRACE_CCACHE ccache)
if(DSTRACE_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${DSTRACE_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${DSTRACE_CCACHE})
endif()

add_library(dstrace_flags INTERFACE)
target_compile_options(dstrace_flags INTERFACE
  -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Wcast-align -Wundef
  -fno-omit-frame-pointer
  "-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")
# At -O3, GCC 12 sees an overlap inside std::string's own operator+ (its bug
# 105651, gone in 13).
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(dstrace_flags INTERFACE $<$<CONFIG:Release>:-Wno-restrict>)
endif()
target_include_directories(dstrace_flags INTERFACE "${CMAKE_SOURCE_DIR}")

if(DSTRACE_SANITIZE)
  target_compile_options(dstrace_flags INTERFACE -fsanitize=${DSTRACE_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(dstrace_flags INTERFACE -fsanitize=${DSTRACE_SANITIZE})
endif()

# Everything tells the fuzzer its branches, not only the fuzzer's own file.
if(DSTRACE_FUZZ)
  target_compile_options(dstrace_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# In the traced process: no exception may cross a C frame, no RTTI, nothing of
# the C++ runtime beyond headers, and every symbol hidden unless exported. -O2:
# what an event costs is the code it must fetch, and -O3 makes more of it.
add_library(dstrace_preload_flags INTERFACE)
target_compile_options(dstrace_preload_flags INTERFACE
  -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections
  $<$<CONFIG:Release>:-O2>
  $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions -fno-rtti -fvisibility-inlines-hidden -fno-threadsafe-statics>
  -include "${CMAKE_SOURCE_DIR}/cmake/glibc_floor.h")
target_link_libraries(dstrace_preload_flags INTERFACE dstrace_flags)
