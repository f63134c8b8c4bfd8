//! What the runtime logs, of all tests of this process: a subscriber for one thread only would miss what other threads
//! were the first to log. Tests find their own lines by the names in them.

use std::{
    io,
    sync::{Arc, LazyLock, Mutex},
};

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::MakeWriter,
    prelude::*,
};

/// Lines, as they are written.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The lines that hold all of these words.
    pub fn lines(&self, words: &[&str]) -> Vec<String> {
        let text = self.text();
        text.lines().filter(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned).collect()
    }
}

/// Everything, down to the finest, as JSON.
pub fn all() -> &'static Log {
    &LOGS.0
}

/// What is printed at the level `warn`, as people read it. The client's own lines are left out, as the binary does.
pub fn warnings() -> &'static Log {
    &LOGS.1
}

static LOGS: LazyLock<(Log, Log)> = LazyLock::new(|| {
    let (all, warnings) = (Log::default(), Log::default());
    let of = |targets: &[&'static str], level: LevelFilter| {
        Targets::new().with_targets(targets.iter().map(|target| (*target, level)))
    };
    let everything = tracing_subscriber::fmt::layer().json().with_writer(all.clone());
    let readable = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(warnings.clone());
    tracing_subscriber::registry()
        .with(everything.with_filter(of(&["ballast_runtime", "kube"], LevelFilter::TRACE)))
        .with(readable.with_filter(of(&["ballast_runtime"], LevelFilter::WARN)))
        .init();
    (all, warnings)
});

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Log {
    type Writer = Log;

    fn make_writer(&'w self) -> Log {
        self.clone()
    }
}
