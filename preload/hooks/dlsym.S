/* SPDX-License-Identifier: Apache-2.0
 *
 * dlsym and dlvsym. libc's dlsym looks at its return address to know who asks
 * (RTLD_NEXT, RTLD_DEFAULT), so everything that is not ours must reach it by a
 * jump that leaves the caller's return address on the stack. That cannot be
 * written in C++.
 *
 *   dlsym(handle, name):
 *     {value, handled} = dstrace_find_symbol(handle, name, NULL, caller)
 *     if handled return value
 *     goto *dstrace_next_dlsym
 */
        .text

        .globl  dlsym
        .type   dlsym, @function
        .p2align 4
dlsym:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp                /* calls want 16-byte alignment */
        .cfi_adjust_cfa_offset 8
        xorl    %edx, %edx
        movq    24(%rsp), %rcx          /* who called us */
        call    dstrace_find_symbol
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %rdx, %rdx
        jne     1f
        movq    dstrace_next_dlsym(%rip), %r11
        jmp     *%r11
1:      ret
        .cfi_endproc
        .size   dlsym, . - dlsym

        .globl  dlvsym
        .type   dlvsym, @function
        .p2align 4
dlvsym:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        movq    24(%rsp), %rcx
        call    dstrace_find_symbol
        movq    %rdx, %r10
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %r10, %r10
        jne     1f
        movq    dstrace_next_dlvsym(%rip), %r11
        jmp     *%r11
1:      ret
        .cfi_endproc
        .size   dlvsym, . - dlvsym

/*   dlopen(file, mode): goto *dstrace_note_open(file, mode)
 * libc looks for `file` where the caller says (its RUNPATH). */
        .globl  dlopen
        .type   dlopen, @function
        .p2align 4
dlopen:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    dstrace_note_open
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .cfi_endproc
        .size   dlopen, . - dlopen

        .section .note.GNU-stack, "", @progbits
