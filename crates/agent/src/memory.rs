//! Files in memory, for programs that read secrets from files: nothing is left of them on any disk.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;

use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};

/// A file that only this user can open, for as long as this is there.
pub(crate) struct InMemory(File);

impl InMemory {
    pub(crate) fn of(text: &str) -> io::Result<InMemory> {
        let mut file = File::from(memfd_create("secret", MemfdFlags::CLOEXEC)?);
        // Options that everybody could have written are not read.
        fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        file.write_all(text.as_bytes())?;
        Ok(InMemory(file))
    }

    /// Where others find it. It is read through this process, which keeps it open.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}
