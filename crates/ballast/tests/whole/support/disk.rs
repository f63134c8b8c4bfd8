//! A disk that is small enough to be filled: memory of a set size, mounted where only this test sees it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::{ballast, said};

/// A disk. Whoever holds it mounted ends with this.
pub struct Disk {
    holder: Child,
    place: TempDir,
}

impl Disk {
    pub fn of_megabytes(size: u32) -> Self {
        let place = tempfile::tempdir().unwrap();
        let script =
            format!("mount -t tmpfs -o size={size}m tmpfs \"$0\" && echo mounted && exec sleep 1000000");
        let mut command = Command::new("unshare");
        // A user of its own, root there: anybody may mount in a namespace that is theirs.
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).arg(place.path());
        let mut holder = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n");
        Disk { holder, place }
    }

    /// The directory, as those see it who are told to run there.
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// The same, as this process reaches it.
    pub fn reached(&self) -> PathBuf {
        Path::new(&format!("/proc/{}/root", self.holder.id())).join(self.path().strip_prefix("/").unwrap())
    }

    /// A program that sees the disk.
    pub fn command(&self, program: &Command) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--preserve-credentials", "--user", "--mount", "--target"]);
        command
            .arg(self.holder.id().to_string())
            .arg("--")
            .arg(program.get_program())
            .args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// `ballast` that sees the disk.
    pub fn ballast(&self, words: &[&str]) -> Command {
        let mut program = ballast();
        program.args(words);
        self.command(&program)
    }

    /// Leaves no room for anything.
    pub fn fill(&self) {
        let mut file = File::create(self.reached().join("filler")).unwrap();
        for size in [1 << 16, 1] {
            while file.write(&vec![b'x'; size]).is_ok_and(|written| written > 0) {}
        }
    }

    /// Makes room again.
    pub fn clear(&self) {
        fs::remove_file(self.reached().join("filler")).unwrap();
    }

    pub fn let_be_written(&self, writable: bool) {
        let mut mount = Command::new("mount");
        mount.args(["-o", if writable { "remount,rw" } else { "remount,ro" }]).arg(self.path());
        said(&mut self.command(&mount), "").ok();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
