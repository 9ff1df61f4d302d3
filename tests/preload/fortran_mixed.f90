! Odd ranks call from C what even ranks call from Fortran, and memory goes from the one to the other.
program fortran_mixed
  use mpi
  use, intrinsic :: iso_c_binding
  implicit none
  interface
    subroutine sum_in_c(mine, total) bind(c)
      import
      real(c_double) :: mine(3), total(3)
    end subroutine
    subroutine bcast_in_c(numbers, root) bind(c)
      import
      integer(c_int) :: numbers(5)
      integer(c_int), value :: root
    end subroutine
    subroutine barrier_in_c() bind(c)
    end subroutine
    subroutine own_sums_in_c() bind(c)
    end subroutine
    type(c_ptr) function allocate_in_c(bytes) bind(c)
      import
      integer(c_long), value :: bytes
    end function
    subroutine free_in_c(memory) bind(c)
      import
      real(c_double) :: memory(*)
    end subroutine
  end interface
  integer(kind=mpi_address_kind), parameter :: bytes = 8 * 40000
  integer :: ierr, rank, ranks, i
  integer(c_int) :: numbers(5)
  real(c_double) :: mine(3), total(3)
  real(c_double), pointer :: memory(:)
  type(c_ptr) :: address
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  do i = 1, 50
    mine = dble(rank + i)
    if (mod(rank, 2) == 0) then
      call MPI_Allreduce(mine, total, 3, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
    else
      call sum_in_c(mine, total)
    end if
    if (any(total /= dble(ranks * i + ranks * (ranks - 1) / 2))) call wrong('sum')
    numbers = -1
    if (rank == mod(i, ranks)) numbers = i
    if (mod(rank + i, 2) == 0) then
      call MPI_Bcast(numbers, 5, MPI_INTEGER, mod(i, ranks), MPI_COMM_WORLD, ierr)
    else
      call bcast_in_c(numbers, mod(i, ranks))
    end if
    if (any(numbers /= i)) call wrong('bcast')
    if (mod(rank + i, 2) == 0) then
      call MPI_Barrier(MPI_COMM_WORLD, ierr)
    else
      call barrier_in_c()
    end if
  end do
  call own_sums_in_c()
  do i = 1, 20
    if (mod(i, 2) == 0) then
      call MPI_Alloc_mem(bytes, MPI_INFO_NULL, address, ierr)
    else
      address = allocate_in_c(bytes)
    end if
    call c_f_pointer(address, memory, [40000])
    memory = 1
    call MPI_Allreduce(MPI_IN_PLACE, memory, 40000, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
    if (any(memory /= ranks)) call wrong('sum in memory of MPI')
    if (mod(i, 2) == 1) then
      call MPI_Free_mem(memory, ierr)
    else
      call free_in_c(memory)
    end if
  end do
  if (rank == 0) print '(a)', 'fortran done'
  call MPI_Finalize(ierr)
contains
  subroutine wrong(what)
    character(*), intent(in) :: what
    print '(a, a, a, i0)', 'WRONG: ', what, ' on rank ', rank
    call MPI_Abort(MPI_COMM_WORLD, 9, ierr)
  end subroutine
end program
