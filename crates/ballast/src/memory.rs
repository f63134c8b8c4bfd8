//! Memory that starting took and going on does not need.

#![expect(unsafe_code, reason = "the allocator's own call has no safe interface")]

/// Gives what is free back to the machine. The allocator keeps it otherwise, because it might be wanted again.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it looks only at what nobody holds, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
