/* A library to load. */
int watched_number(void) {
  return 1;
}
