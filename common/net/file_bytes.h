/* file_bytes: a file of the sources as bytes of the program, which the assembler reads. Who uses it
 * says in tests/build.mk that its object is made anew when the file is another. */
#ifndef BATON_NET_FILE_BYTES_H
#define BATON_NET_FILE_BYTES_H

#include <stdint.h>

/* name: the bytes of the file, a path from the root; name_bytes: how many. */
#define FILE_BYTES(name, path)                                                                     \
    __asm__(".section .rodata\n"                                                                   \
            ".global " #name "\n"                                                                  \
            ".global " #name "_bytes\n" #name ":\n"                                                \
            ".incbin \"" path "\"\n"                                                               \
            ".L" #name "_end:\n"                                                                   \
            ".balign 8\n" #name "_bytes:\n"                                                        \
            ".8byte .L" #name "_end - " #name "\n"                                                 \
            ".previous\n");                                                                        \
    extern const char name[];                                                                      \
    extern const uint64_t name##_bytes

#endif
