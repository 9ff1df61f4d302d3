/* As much of an MPI as it takes to be told from others. ABI_MAJOR, ABI_FAILS: what MPI_Abi_get_version gives;
 * without them there is none. */
#include <string.h>

static int initialized = 0; /* of this library, whatever others in the process have */

void fake_initialize(void);
void fake_initialize(void) {
  initialized = 1;
}

#ifdef OPEN_MPI
char ompi_mpi_comm_world[1];
#endif

int PMPI_Comm_rank(void);
int PMPI_Comm_rank(void) {
  return 0;
}

int PMPI_Initialized(int* flag);
int PMPI_Initialized(int* flag) {
  *flag = initialized;
  return 0;
}

int PMPI_Get_library_version(char* text, int* length);
int PMPI_Get_library_version(char* text, int* length) {
  strcpy(text, LIBRARY_VERSION);
  *length = (int)strlen(text);
  return 0;
}

#ifdef ABI_MAJOR
int PMPI_Abi_get_version(int* major, int* minor);
int PMPI_Abi_get_version(int* major, int* minor) {
  *major = ABI_MAJOR;
  *minor = 0;
#ifdef ABI_FAILS
  return 1;
#else
  return 0;
#endif
}
#endif
