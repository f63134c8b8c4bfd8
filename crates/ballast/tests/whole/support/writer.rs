//! A client that writes one numbered row after the other, and remembers which the server acknowledged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::Scope;

use super::eventually;
use super::mysql::Instance;

/// What the rows are written to.
pub const TABLE: &str = "CREATE TABLE numbered (n INT PRIMARY KEY);";

/// Who writes, and what it was told is written.
#[derive(Default)]
pub struct Writer {
    written: Mutex<Vec<u32>>,
    enough: AtomicBool,
}

impl Writer {
    pub fn written(&self) -> MutexGuard<'_, Vec<u32>> {
        self.written.lock().unwrap()
    }

    /// Writes from here on, in the instance's table, after what was written before.
    pub fn begin<'s>(&'s self, scope: &'s Scope<'s, '_>, to: Instance<'s>) {
        let password = to.password("password");
        let first = self.written().last().copied().unwrap_or_default() + 1000;
        self.enough.store(false, Ordering::Release);
        scope.spawn(move || {
            for number in first.. {
                if self.enough.load(Ordering::Acquire) {
                    return;
                }
                let statement = format!("INSERT INTO numbered VALUES ({number});");
                if to.sql_with(&password, &statement).status.success() {
                    self.written().push(number);
                }
            }
        });
    }

    /// Waits until some more are written.
    #[track_caller]
    pub fn goes_on(&self) -> Vec<u32> {
        let before = self.written().len();
        eventually("rows are written", || {
            let written = self.written();
            (written.len() > before + 1).then(|| written.clone())
        })
    }
}

/// Ends the writer however the test ends.
pub struct Enough<'a>(pub &'a Writer);

impl Drop for Enough<'_> {
    fn drop(&mut self) {
        self.0.enough.store(true, Ordering::Release);
    }
}

/// Every row that was acknowledged is there.
#[track_caller]
pub fn holds(instance: Instance<'_>, acknowledged: &[u32]) {
    let rows = instance.sql("SELECT n FROM numbered;").ok();
    let found: Vec<u32> = rows.lines().map(|line| line.parse().unwrap()).collect();
    let lost: Vec<&u32> = acknowledged.iter().filter(|number| !found.contains(number)).collect();
    assert!(lost.is_empty(), "{} has lost {lost:?} of {}", instance.name, acknowledged.len());
}
