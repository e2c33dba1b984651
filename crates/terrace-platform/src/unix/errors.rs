use rustix::io::Errno;

pub const INTERRUPTED: i32 = Errno::INTR.raw_os_error();
pub const AGAIN: i32 = Errno::AGAIN.raw_os_error();
pub const CANCELLED: i32 = Errno::CANCELED.raw_os_error();
pub const INPUT_OUTPUT: i32 = Errno::IO.raw_os_error();
