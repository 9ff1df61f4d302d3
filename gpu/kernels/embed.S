/* A fat binary as constant data: HEDDLE_SYMBOL is its name, HEDDLE_FILE where it is. Nothing outside the library sees it. */
  .section .rodata
  .balign 64
  .globl HEDDLE_SYMBOL
  .hidden HEDDLE_SYMBOL
  .type HEDDLE_SYMBOL, %object
HEDDLE_SYMBOL:
  .incbin HEDDLE_FILE
  .size HEDDLE_SYMBOL, . - HEDDLE_SYMBOL
  .section .note.GNU-stack, "", %progbits
