#!/bin/sh
# Fails when libheddle.so exports anything but heddle_*: a name too many can collide with one of the program's.
set -eu
names=$(nm -D --defined-only "$1" | awk '{print $NF}')
# Sanitizers put names of their own into what they build.
odd=$(printf '%s\n' "$names" | grep -Ev '^(heddle_|__(asan|ubsan|tsan|lsan|sanitizer|odr_asan)|_init$|_fini$)' || true)
if [ -n "$odd" ]; then
  printf 'exported, and not heddle_*:\n%s\n' "$odd"
  exit 1
fi
printf '%s\n' "$names" | grep -qx heddle_allreduce
