//! Writing to an open file without a lock or a buffer.

use std::io;
use std::marker::PhantomData;
use std::os::windows::io::{AsHandle, AsRawHandle};
use windows_sys::Win32::Foundation::HANDLE;
use windows_sys::Win32::Storage::FileSystem::WriteFile;
use windows_sys::Win32::System::Console::{GetConsoleMode, GetStdHandle, STD_ERROR_HANDLE, WriteConsoleW};

/// Most bytes that are written at a time.
const MOST: usize = 16 << 10;

/// An open file that can be written to.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a>(HANDLE, PhantomData<&'a ()>);

// SAFETY: a handle that is open for as long as the value lives; the system's calls take it from any thread.
unsafe impl Send for Output<'_> {}
// SAFETY: as for Send.
unsafe impl Sync for Output<'_> {}

impl<'a> Output<'a> {
    /// Returns a file, or an end of a pipe.
    pub fn of(file: &'a impl AsHandle) -> Self {
        Self(file.as_handle().as_raw_handle(), PhantomData)
    }

    /// Writes some of the bytes, and returns how many.
    ///
    /// # Errors
    /// The system's.
    pub fn write(self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(MOST)];
        let mut mode = 0;
        // SAFETY: room for a number; the call fails for what is no console.
        if unsafe { GetConsoleMode(self.0, &raw mut mode) } != 0 {
            return self.write_text(bytes);
        }
        let mut written = 0;
        // SAFETY: bytes of that length; without a standard error the call fails.
        let done = unsafe {
            WriteFile(self.0, bytes.as_ptr(), bytes.len() as u32, &raw mut written, std::ptr::null_mut())
        };
        super::call::check(done)?;
        Ok(written as usize)
    }

    /// Writes to a console, which takes characters.
    fn write_text(self, bytes: &[u8]) -> io::Result<usize> {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            // A character that is cut off at the end is written with the next bytes.
            Err(error) if error.valid_up_to() > 0 => {
                std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(_) => "?",
        };
        let units: Vec<u16> = text.encode_utf16().collect();
        let mut rest = &units[..];
        while !rest.is_empty() {
            let (len, mut written) = (rest.len() as u32, 0);
            // SAFETY: a console, and units of that number.
            super::call::check(unsafe {
                WriteConsoleW(self.0, rest.as_ptr(), len, &raw mut written, std::ptr::null())
            })?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            rest = &rest[written as usize..];
        }
        Ok(text.len())
    }
}

/// Returns this process's standard error.
pub fn stderr() -> Output<'static> {
    // SAFETY: asks for a number.
    Output(unsafe { GetStdHandle(STD_ERROR_HANDLE) }, PhantomData)
}
