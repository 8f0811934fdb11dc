/* The model's bytes as a read-only section of the executable (MODEL is a file's path in quotes), or none.
 * Page-aligned for every page size that Linux has on x86-64 and ARM: the file is mapped in place. */
    .section .note.GNU-stack,"",%progbits
    .section .orlop_model,"a",%progbits
#ifdef MODEL
    .balign 65536
#endif
    .global edge_model_begin, edge_model_end
edge_model_begin:
#ifdef MODEL
    .incbin MODEL
#endif
edge_model_end:
    .byte 0 /* the section is never empty, so its symbols are never null */
