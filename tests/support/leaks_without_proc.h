/* Read by the leak sanitizer if there is one: it ends a process that has no /proc, where it would list
 * threads. For the main file of a program. */
#ifndef HEDDLE_TESTS_LEAKS_WITHOUT_PROC_H
#define HEDDLE_TESTS_LEAKS_WITHOUT_PROC_H

#include <unistd.h>

__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) {
  return access("/proc/self", F_OK) != 0;
}

#endif
