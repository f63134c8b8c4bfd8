//! The API, driven as a client drives it: requests in, answers out, no network.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that can't go on fails")]

mod access;
mod beginning;
mod cluster;
mod crud;
mod definitions;
mod deleting;
mod expiring;
mod hooks;
mod patching;
mod paths;
mod services;
mod watching;
