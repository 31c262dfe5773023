! SPDX-License-Identifier: Apache-2.0
!
! A program as a rank, in Fortran: the ring of ring.c. The library has a plain C interface, which
! ISO_C_BINDING can call.
!
!   gfortran ring.f90 $(pkg-config --libs collrun) -o ring
program ring
    use, intrinsic :: iso_c_binding
    implicit none

    integer(c_int), parameter :: collrun_int64 = 6, collrun_sum = 0

    interface
        integer(c_int) function collrun_init(ctx) bind(c)
            import
            type(c_ptr), intent(out) :: ctx
        end function
        integer(c_int) function collrun_finalize(ctx) bind(c)
            import
            type(c_ptr), value :: ctx
        end function
        integer(c_int) function collrun_group_get(ctx, name, group) bind(c)
            import
            type(c_ptr), value :: ctx
            character(kind=c_char), intent(in) :: name(*)
            type(c_ptr), intent(out) :: group
        end function
        integer(c_int) function collrun_rank(group) bind(c)
            import
            type(c_ptr), value :: group
        end function
        integer(c_int) function collrun_size(group) bind(c)
            import
            type(c_ptr), value :: group
        end function
        integer(c_int) function collrun_sendrecv(group, send, sendcount, dst, recv, recvcount, src, &
                                                 dtype) bind(c)
            import
            type(c_ptr), value :: group, send, recv
            integer(c_size_t), value :: sendcount, recvcount
            integer(c_int), value :: dst, src, dtype
        end function
        integer(c_int) function collrun_allreduce(group, send, recv, count, dtype, op) bind(c)
            import
            type(c_ptr), value :: group, send, recv
            integer(c_size_t), value :: count
            integer(c_int), value :: dtype, op
        end function
        type(c_ptr) function collrun_error() bind(c)
            import
        end function
        integer(c_size_t) function strlen(text) bind(c)
            import
            type(c_ptr), value :: text
        end function
    end interface

    type(c_ptr) :: ctx, world
    integer(c_int) :: rank, size
    integer(c_int64_t), target :: mine, left, total
    integer(c_size_t), parameter :: one = 1

    call check(collrun_init(ctx))
    call check(collrun_group_get(ctx, "world" // c_null_char, world))
    rank = collrun_rank(world)
    size = collrun_size(world)
    mine = rank
    call check(collrun_sendrecv(world, c_loc(mine), one, modulo(rank + 1, size), c_loc(left), one, &
                                modulo(rank - 1, size), collrun_int64))
    call check(collrun_allreduce(world, c_loc(left), c_loc(total), one, collrun_int64, collrun_sum))
    print '("rank ",i0," of ",i0,": got ",i0,", the sum is ",i0)', rank, size, left, total
    call check(collrun_finalize(ctx))

contains

    subroutine check(status)
        use, intrinsic :: iso_fortran_env, only: error_unit
        integer(c_int), intent(in) :: status
        type(c_ptr) :: message
        character(kind=c_char), pointer :: text(:)
        if (status == 0) return
        message = collrun_error()
        call c_f_pointer(message, text, [strlen(message)])
        write (error_unit, '(*(a))') text
        stop 1
    end subroutine
end program
