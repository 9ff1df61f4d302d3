! MPI_Allreduce, MPI_Bcast, MPI_Reduce, MPI_Allgather and MPI_Barrier from Fortran 2008 (use mpi_f08), in place and not.
program fortran_f08
  use mpi_f08
  implicit none
  integer :: ierr, rank, ranks, i, k
  integer :: numbers(5)
  double precision :: mine(3), total(3)
  integer, allocatable :: all(:)
  logical :: all_true, here
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  allocate(all(ranks))
  do i = 1, 6
    mine = dble(rank + i)
    call MPI_Allreduce(mine, total, 3, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
    if (any(total /= dble(ranks * i + ranks * (ranks - 1) / 2))) call wrong('sum')
    numbers = rank + i
    call MPI_Allreduce(MPI_IN_PLACE, numbers, 5, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, ierr)
    if (any(numbers /= ranks - 1 + i)) call wrong('max in place')
    here = mod(i, 2) == 0 .or. rank > 0
    call MPI_Allreduce(here, all_true, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, ierr)
    if (all_true .neqv. mod(i, 2) == 0) call wrong('logical')
    numbers = -1
    if (rank == ranks - 1) numbers = i
    call MPI_Bcast(numbers, 5, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, ierr)
    if (any(numbers /= i)) call wrong('bcast')
    total = -1
    call MPI_Reduce(mine, total, 3, MPI_DOUBLE_PRECISION, MPI_SUM, ranks - 1, MPI_COMM_WORLD, ierr)
    if (rank == ranks - 1 .and. any(total /= dble(ranks * i + ranks * (ranks - 1) / 2))) call wrong('reduce')
    if (rank < ranks - 1 .and. any(total /= -1)) call wrong('reduce elsewhere')
    numbers = rank + i
    if (rank == 0) then
      call MPI_Reduce(MPI_IN_PLACE, numbers, 5, MPI_INTEGER, MPI_MAX, 0, MPI_COMM_WORLD, ierr)
      if (any(numbers /= ranks - 1 + i)) call wrong('reduce in place')
    else
      call MPI_Reduce(numbers, numbers, 5, MPI_INTEGER, MPI_MAX, 0, MPI_COMM_WORLD, ierr)
      if (any(numbers /= rank + i)) call wrong('reduce of others')
    end if
    call MPI_Allgather(rank + i, 1, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    if (any(all /= [(k + i, k = 0, ranks - 1)])) call wrong('allgather')
    all = -1
    all(rank + 1) = rank * i
    call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 1, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    if (any(all /= [(k * i, k = 0, ranks - 1)])) call wrong('allgather in place')
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
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
