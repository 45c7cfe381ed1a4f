/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps libdstrace.so loadable on glibc 2.28 and later: functions that moved
 * from libpthread/libdl into libc in 2.34 are bound to the version they had
 * before. Force-included into everything that is linked into the preload. Names
 * that the hooks define themselves (dlsym, dlvsym, dlclose) are not in the list.
 */
#if defined(__x86_64__) && !defined(__ASSEMBLER__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define DSTRACE_BIND(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
DSTRACE_BIND(dlopen);
DSTRACE_BIND(dlerror);
DSTRACE_BIND(dladdr);
DSTRACE_BIND(pthread_key_create);
DSTRACE_BIND(pthread_key_delete);
DSTRACE_BIND(pthread_getspecific);
DSTRACE_BIND(pthread_setspecific);
DSTRACE_BIND(pthread_once);
DSTRACE_BIND(pthread_create);
DSTRACE_BIND(pthread_join);
__asm__(".symver dladdr1,dladdr1@GLIBC_2.3.3");
#undef DSTRACE_BIND
#endif
