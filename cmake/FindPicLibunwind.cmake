# SPDX-License-Identifier: Apache-2.0
# Finds the private, position-independent libunwind that tools/build_libunwind.sh
# makes. Gives the target dstrace::libunwind.
#   DSTRACE_LIBUNWIND_ROOT  where to look (default: <repository>/deps/libunwind)

get_filename_component(PicLibunwind_DEFAULT "${CMAKE_CURRENT_LIST_DIR}/../deps/libunwind" ABSOLUTE)
set(DSTRACE_LIBUNWIND_ROOT "${PicLibunwind_DEFAULT}" CACHE PATH
    "Prefix of a static, position-independent libunwind")

find_path(PicLibunwind_INCLUDE_DIR libunwind.h
  PATHS "${DSTRACE_LIBUNWIND_ROOT}/include" NO_DEFAULT_PATH)
# Without symbol versions: sanitizers that intercept cannot be linked with them.
set(PicLibunwind_NAME libunwind.a)
if(DSTRACE_SANITIZE MATCHES "thread")
  set(PicLibunwind_NAME libunwind-thread.a)
elseif(DSTRACE_SANITIZE MATCHES "address|memory")
  set(PicLibunwind_NAME libunwind-sanitize.a)
endif()
find_library(PicLibunwind_LIBRARY NAMES ${PicLibunwind_NAME}
  PATHS "${DSTRACE_LIBUNWIND_ROOT}/lib" NO_DEFAULT_PATH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PicLibunwind
  REQUIRED_VARS PicLibunwind_LIBRARY PicLibunwind_INCLUDE_DIR
  REASON_FAILURE_MESSAGE
    "no position-independent libunwind in ${DSTRACE_LIBUNWIND_ROOT}: build it with tools/build_libunwind.sh")
mark_as_advanced(PicLibunwind_INCLUDE_DIR PicLibunwind_LIBRARY)

if(PicLibunwind_FOUND AND NOT TARGET dstrace::libunwind)
  add_library(dstrace::libunwind STATIC IMPORTED)
  set_target_properties(dstrace::libunwind PROPERTIES
    IMPORTED_LOCATION "${PicLibunwind_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${PicLibunwind_INCLUDE_DIR}"
    # The archive's functions must not become exports of libdstrace.so.
    INTERFACE_LINK_OPTIONS "LINKER:--exclude-libs,ALL")
endif()
