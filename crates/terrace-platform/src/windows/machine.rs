use super::call::text;
use windows_sys::Win32::System::SystemInformation::{ComputerNamePhysicalDnsHostname, GetComputerNameExW};

pub fn name() -> Option<String> {
    let name = text(|room| {
        let mut len = u32::try_from(room.len()).unwrap_or(u32::MAX);
        // SAFETY: room of that length; the call writes the length that it takes if there is too little.
        unsafe { GetComputerNameExW(ComputerNamePhysicalDnsHostname, room.as_mut_ptr(), &raw mut len) };
        len
    });
    name.ok()?.into_string().ok()
}
