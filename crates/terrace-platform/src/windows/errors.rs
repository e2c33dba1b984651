use windows_sys::Win32::Foundation::{ERROR_IO_DEVICE, ERROR_NO_SYSTEM_RESOURCES, ERROR_OPERATION_ABORTED};
use windows_sys::Win32::Networking::WinSock::WSAEINTR;

pub const INTERRUPTED: i32 = WSAEINTR;
pub const AGAIN: i32 = ERROR_NO_SYSTEM_RESOURCES.cast_signed();
pub const CANCELLED: i32 = ERROR_OPERATION_ABORTED.cast_signed();
pub const INPUT_OUTPUT: i32 = ERROR_IO_DEVICE.cast_signed();
